/*
 * Which element a path of EN 18222 means: a singular query of JSONPath (RFC 9535), such as `$.performance.ratedCapacity` or
 * `$['materials']['electrodeMaterials'][0]`; or the same names with slashes between them.
 */

export type PathStep = string | number;

const nameStep = /^\.([A-Za-z_\u0080-\u{10ffff}][\w\u0080-\u{10ffff}]*)/u;
const indexStep = /^\[(0|-?[1-9]\d{0,14})\]/;
const quotedStep = /^\[(?:'((?:[^'\\]|\\['\\])*)'|"((?:[^"\\]|\\["\\])*)")\]/;

/** Undefined if it is no path to exactly one element. */
export function parsePath(text: string): readonly PathStep[] | undefined {
  if (!text.startsWith('$')) {
    const names = text.split('/');
    return names.length <= 20 && names.every((name) => /^[\w-]{1,128}$/.test(name)) ? names : undefined;
  }
  const steps: PathStep[] = [];
  let rest = text.slice(1);
  while (rest !== '' && steps.length < 20) {
    const [all = '', name, other] =
      nameStep.exec(rest) ?? quotedStep.exec(rest) ?? indexStep.exec(rest) ?? [];
    if (all === '') return undefined;
    const found = name ?? other ?? '';
    steps.push(indexStep.test(all) ? Number(found) : found.replace(/\\(['"\\])/g, '$1'));
    rest = rest.slice(all.length);
  }
  return rest === '' && steps.length > 0 ? steps : undefined;
}

/** Undefined where there is nothing. */
export function valueAt(document: unknown, steps: readonly PathStep[]): unknown {
  return steps.reduce<unknown>((value, step) => {
    if (Array.isArray(value)) {
      const index = typeof step === 'number' ? step : /^\d{1,9}$/.test(step) ? Number(step) : undefined;
      return index === undefined ? undefined : value.at(index);
    }
    if (typeof value !== 'object' || value === null || typeof step === 'number') return undefined;
    return Object.hasOwn(value, step) ? (value as Readonly<Record<string, unknown>>)[step] : undefined;
  }, document);
}
