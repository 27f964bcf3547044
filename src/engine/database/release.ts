/** Which of two releases is older, as semantic versions order them (https://semver.org, §11): below 0, 0, above 0. */
export function compareReleases(a: string, b: string): number {
  const [left, right] = [parse(a), parse(b)];
  for (const [index, number] of left.core.entries()) {
    const difference = number - (right.core[index] ?? 0);
    if (difference !== 0) return difference;
  }
  // A release comes after its candidates.
  if (left.pre.length === 0 || right.pre.length === 0) return right.pre.length - left.pre.length;
  for (const [index, part] of left.pre.entries()) {
    const other = right.pre[index];
    if (other === undefined) return 1;
    const difference = comparePart(part, other);
    if (difference !== 0) return difference;
  }
  return left.pre.length - right.pre.length;
}

interface Release {
  readonly core: readonly number[];
  readonly pre: readonly string[];
}

function parse(text: string): Release {
  const [, core, pre] = /^(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.-]+))?(?:\+.*)?$/.exec(text) ?? [];
  if (core === undefined) throw new Error(`"${text}" is not a version such as 1.2.3 or 1.2.3-rc.1`);
  return { core: core.split('.').map(Number), pre: pre === undefined ? [] : pre.split('.') };
}

/** Numbers by value and before words; words by their bytes. */
function comparePart(a: string, b: string): number {
  const [left, right] = [/^\d+$/.test(a), /^\d+$/.test(b)];
  if (left && right) return Number(a) - Number(b);
  if (left !== right) return left ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}
