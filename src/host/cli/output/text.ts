const segmenter = new Intl.Segmenter();
const wide =
  /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/u;

/** How many cells of a terminal a text takes. */
export function widthOf(text: string): number {
  // Printable ASCII is nearly everything, and needs no segmenting.
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let width = 0;
  for (const { segment } of segmenter.segment(text)) width += wide.test(segment) ? 2 : 1;
  return width;
}

/** At most `width` cells; `…` marks a cut. */
export function truncate(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let kept = '';
  let used = 0;
  for (const { segment } of segmenter.segment(text)) {
    const cells = wide.test(segment) ? 2 : 1;
    if (used + cells > width - 1) break;
    kept += segment;
    used += cells;
  }
  return width < 1 ? '' : `${kept}…`;
}

/** Names and messages come from users: removes control characters, which a terminal would execute. */
export function printable(text: string): string {
  return text
    .replace(/\r?\n/g, ' ')
    .replace(
      /[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
}

/** The same for text of several lines, such as a stack trace. */
export const printableLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => printable(line.replaceAll('\t', '  ')))
    .join('\n');

export const count = (n: number, one: string, many = `${one}s`): string =>
  `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
