import { createHash } from 'node:crypto';
import { type LabelImage, type Panel, readTemplate, renderLabel, type Template } from './render/index.ts';

/** What an image is made of. `svg` null: a blank page. */
export interface Design {
  readonly svg: string | null;
  readonly values: Readonly<Record<string, string>>;
  readonly panel: Panel;
}

const mostBytes = 32 * 1024 * 1024;
const mostTemplates = 200;
/** The overhead of an entry: keys, the promise, the map. */
const entryBytes = 500;

/**
 * Renders each image once while it is cached: labels of one product and type show the same image, and so does a price that
 * returns to an old value. The same design gives the same image, so all callers can share it.
 */
export class Images {
  readonly #templates = new Map<string, Template>();
  readonly #images = new Map<string, { readonly image: Promise<LabelImage>; bytes: number }>();
  #bytes = 0;

  /** A parsed template; throws TemplateError for an invalid one. */
  template(svg: string): Template {
    const known = this.#templates.get(svg);
    if (known) return known;
    const template = readTemplate(svg);
    if (this.#templates.size >= mostTemplates) {
      const [oldest = ''] = this.#templates.keys();
      this.#templates.delete(oldest);
    }
    this.#templates.set(svg, template);
    return template;
  }

  /** Whether it is in the cache. */
  has(design: Design): boolean {
    return this.#images.has(this.#keyOf(design));
  }

  async render(design: Design): Promise<LabelImage> {
    const key = this.#keyOf(design);
    const known = this.#images.get(key);
    if (known) {
      // Move it to the end: the least recently used entry is first.
      this.#images.delete(key);
      this.#images.set(key, known);
      return known.image;
    }
    const image = this.#draw(design);
    const entry = { image, bytes: 0 };
    this.#images.set(key, entry);
    image.then(
      ({ png }) => {
        if (this.#images.get(key) !== entry) return;
        entry.bytes = png.length + entryBytes;
        this.#bytes += entry.bytes;
        this.#forgetOldest();
      },
      () => this.#images.delete(key),
    );
    return image;
  }

  async #draw({ svg, values, panel }: Design): Promise<LabelImage> {
    return renderLabel(this.template(svg ?? blank(panel)), values, panel);
  }

  /** Includes all values: a template may also show optional values, or leave out elements that depend on one. */
  #keyOf({ svg, values, panel }: Design): string {
    const filled = svg === null ? [] : Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1));
    return createHash('sha256')
      .update(JSON.stringify([panel.width, panel.height, panel.palette, svg, filled]))
      .digest('base64');
  }

  #forgetOldest(): void {
    for (const [key, { bytes }] of this.#images) {
      if (this.#bytes <= mostBytes) return;
      this.#images.delete(key);
      this.#bytes -= bytes;
    }
  }
}

/** One cache per process: an image depends on nothing but its design. */
export const images = new Images();

/** What a cleared page shows. */
const blank = ({ width, height }: Panel): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"/>`;
