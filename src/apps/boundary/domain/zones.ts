import { invalid } from './errors.ts';

declare const zoneBrand: unique symbol;
/** The slug of a configured zone. */
export type Zone = string & { readonly [zoneBrand]: true };

const slug = /^[a-z0-9]+(?:-[a-z0-9]+)*$/;
/** It is part of the names of streams and of certificates. */
const longest = 63;

export const isSlug = (text: string): boolean => text.length <= longest && slug.test(text);

/** "Plant A" → "plant-a", "Werk Köln_2" → "werk-koln-2". Empty if there is nothing to make it of. */
export function slugOf(name: string): string {
  return name
    .normalize('NFKD')
    .replace(/\p{Mark}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '');
}

/** The zones that a node knows. Names are compared as slugs; what is not configured is refused. */
export class Zones {
  readonly #zones: ReadonlySet<string>;

  constructor(slugs: readonly string[]) {
    for (const each of slugs)
      if (!isSlug(each))
        throw invalid(
          'zone',
          `"${each}" is not a slug: up to ${longest} lower-case letters, digits and single hyphens` +
            (isSlug(slugOf(each)) ? `, such as "${slugOf(each)}"` : ''),
        );
    this.#zones = new Set(slugs);
  }

  get all(): readonly Zone[] {
    return [...this.#zones] as Zone[];
  }

  /** The zone of a name as integrators write it. `field` says in errors where it came from. */
  resolve(name: string, field: string): Zone {
    if (this.#zones.has(name)) return name as Zone;
    if (name === '') throw invalid(field, `is missing: expected ${this.#listed()}`);
    const meant = slugOf(name.slice(0, 4 * longest));
    if (this.#zones.has(meant)) return meant as Zone;
    const nearest = this.#nearest(meant);
    throw invalid(
      field,
      `${JSON.stringify(name.slice(0, 4 * longest))} is not a configured zone` +
        (nearest === undefined ? '' : `; did you mean "${nearest}"?`),
    );
  }

  #nearest(meant: string): string | undefined {
    return [...this.#zones]
      .map((zone) => ({ zone, distance: distance(zone, meant.slice(0, longest)) }))
      .sort((a, b) => a.distance - b.distance || (a.zone < b.zone ? -1 : 1))[0]?.zone;
  }

  #listed(): string {
    return [...this.#zones].map((zone) => `"${zone}"`).join(', ') || 'a zone, and none is configured';
  }
}

/** How many letters must be added, removed or changed (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
