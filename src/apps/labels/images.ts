import { createHash } from 'node:crypto';
import {
  type LabelImage,
  type Panel,
  RenderPool,
  type RenderTask,
  type TemplateFacts,
} from './render/index.ts';

/** What an image is made of. `svg` null: a blank page. */
export interface Design {
  readonly svg: string | null;
  readonly values: Readonly<Record<string, string>>;
  readonly panel: Panel;
}

const mostBytes = 32 * 1024 * 1024;
/** Of the names in templates: a change looks at those of all templates it touches. */
const mostFactBytes = 32 * 1024 * 1024;
const mostChecked = 20_000;
/** The overhead of an entry: keys, the promise, the map. */
const entryBytes = 500;

/**
 * Renders each image once while it is cached: labels of one product and type show the same image, and so does a price that
 * returns to an old value. The same design gives the same image, so all callers can share it.
 */
export class Images {
  /** By the hash of the text: the texts of tenants would take a hundred megabytes. */
  readonly #templates = new Map<string, { readonly facts: TemplateFacts; readonly bytes: number }>();
  readonly #images = new Map<string, { readonly image: Promise<LabelImage>; bytes: number }>();
  /** Designs that can be drawn. */
  readonly #checked = new Set<string>();
  readonly #pool: RenderPool;
  #bytes = 0;
  #factBytes = 0;

  constructor(pool = new RenderPool()) {
    this.#pool = pool;
  }

  /** Images that wait to be drawn. */
  get waiting(): number {
    return this.#pool.waiting;
  }

  /** What a template asks for, if it has been read before. */
  knownTemplate(svg: string): TemplateFacts | undefined {
    return this.#templates.get(hashOf(svg))?.facts;
  }

  /** What a template asks for; throws TemplateError for an invalid one. A process of its own reads it. */
  async template(tenantId: string, svg: string): Promise<TemplateFacts> {
    const key = hashOf(svg);
    const known = this.#templates.get(key);
    if (known) return known.facts;
    const facts = await this.#pool.read(tenantId, svg);
    const bytes = facts.placeholders.join('').length + entryBytes;
    if (!this.#templates.has(key)) this.#factBytes += bytes;
    this.#templates.set(key, { facts, bytes });
    for (const [oldest, { bytes: freed }] of this.#templates) {
      if (this.#factBytes <= mostFactBytes) break;
      this.#templates.delete(oldest);
      this.#factBytes -= freed;
    }
    return facts;
  }

  /** Whether `render` answers at once. */
  has(design: Design): boolean {
    return (this.#images.get(this.#keyOf(design))?.bytes ?? 0) > 0;
  }

  /** Whether it is known that it can be drawn. */
  isChecked(design: Design): boolean {
    return design.svg === null || this.#checked.has(this.#keyOf(design));
  }

  /** In a process of its own, where it competes with what else the tenant has drawn. */
  async render(tenantId: string, design: Design): Promise<LabelImage> {
    const key = this.#keyOf(design);
    const known = this.#images.get(key);
    if (known) {
      // Move it to the end: the least recently used entry is first.
      this.#images.delete(key);
      this.#images.set(key, known);
      return known.image;
    }
    const image = this.#pool.render(tenantId, taskOf(design));
    const entry = { image, bytes: 0 };
    this.#images.set(key, entry);
    image.then(
      ({ png }) => {
        this.#noteChecked(key);
        if (this.#images.get(key) !== entry) return;
        entry.bytes = png.length + entryBytes;
        this.#bytes += entry.bytes;
        this.#forgetOldest();
      },
      () => this.#images.delete(key),
    );
    return image;
  }

  /** Throws what `render` would throw, without drawing: a twentieth of the time. */
  async check(tenantId: string, design: Design): Promise<void> {
    if (this.isChecked(design)) return;
    await this.#pool.check(tenantId, taskOf(design));
    this.#noteChecked(this.#keyOf(design));
  }

  #noteChecked(key: string): void {
    if (this.#checked.size >= mostChecked) {
      const [oldest = ''] = this.#checked;
      this.#checked.delete(oldest);
    }
    this.#checked.add(key);
  }

  /** Includes all values: a template may also show optional values, or leave out elements that depend on one. */
  #keyOf({ svg, values, panel }: Design): string {
    const filled = svg === null ? [] : Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1));
    return hashOf(JSON.stringify([panel.width, panel.height, panel.palette, svg, filled]));
  }

  #forgetOldest(): void {
    for (const [key, { bytes }] of this.#images) {
      if (this.#bytes <= mostBytes) return;
      this.#images.delete(key);
      this.#bytes -= bytes;
    }
  }
}

const hashOf = (text: string): string => createHash('sha256').update(text).digest('base64');

/** One cache per process: an image depends on nothing but its design. */
export const images = new Images();

const taskOf = ({ svg, values, panel }: Design): RenderTask => ({ svg: svg ?? blank(panel), values, panel });

/** What a cleared page shows. */
const blank = ({ width, height }: Panel): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"/>`;
