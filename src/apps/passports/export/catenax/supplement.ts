import type { Json } from '../../compile/index.ts';

/*
 * The aspect model asks for more than a passport has: numbers of business partners, conditions of tests, trace substances.
 * What the passport does not have is a gap in the draft; a supplement of the same shape fills gaps and adds options. It never
 * replaces what the passport says, because that is signed.
 */

/** Stands in a draft where the aspect needs a value that the passport does not have. */
class Gap {
  readonly #isGap = true;
  static is = (value: unknown): value is Gap => value instanceof Gap && value.#isGap;
}
export const gap = new Gap();
export type Draft = Json | Gap | readonly Draft[] | { readonly [key: string]: Draft };
type DraftObject = { readonly [key: string]: Draft };

export interface Filled {
  readonly value: Json;
  /** Where something is still missing, or where the supplement does not fit. Empty: `value` is complete. */
  readonly problems: readonly string[];
}

const isObject = (value: Draft | undefined): value is DraftObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !Gap.is(value);
const isList = (value: Draft | undefined): value is readonly Draft[] => Array.isArray(value);

export function fill(draft: Draft, supplement: Json | undefined): Filled {
  const problems: string[] = [];
  return { value: fillAt('', draft, supplement, problems), problems };
}

function fillAt(at: string, draft: Draft, more: Json | undefined, problems: string[]): Json {
  if (Gap.is(draft)) {
    if (more === undefined) problems.push(`${at}: is needed, and the passport does not have it`);
    return more ?? null;
  }
  if (isObject(draft)) return fillObject(at, draft, more, problems);
  if (isList(draft)) {
    // An object completes every element of a list; a list would have to know their order.
    if (more !== undefined && !isObject(more))
      problems.push(`${at}: the passport has this list; give one object that completes each element`);
    return draft.map((each, index) =>
      fillAt(`${at}/${index}`, each, isObject(more) ? more : undefined, problems),
    );
  }
  if (more !== undefined && more !== draft)
    problems.push(`${at}: the passport says ${JSON.stringify(draft)}, and the supplement something else`);
  return draft as Json;
}

function fillObject(at: string, draft: DraftObject, more: Json | undefined, problems: string[]): Json {
  if (more !== undefined && !isObject(more)) problems.push(`${at}: an object is expected in the supplement`);
  const given: { readonly [key: string]: Json } = isObject(more)
    ? (more as { readonly [key: string]: Json })
    : {};
  return {
    ...given,
    ...Object.fromEntries(
      Object.entries(draft).map(([key, each]) => [
        key,
        fillAt(`${at}/${key}`, each, Object.hasOwn(given, key) ? given[key] : undefined, problems),
      ]),
    ),
  };
}
