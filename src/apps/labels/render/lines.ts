import { hyphenationPoints } from './hyphenation.ts';
import type { Lettering } from './lettering.ts';
import { isPlain, widthOf } from './text.ts';

const ellipsis = '…';
const softHyphen = /\u00ad/g;

/** Characters that a line may end between, without a blank: Chinese and Japanese; Korean has blanks between its words. */
const ideograph = /[\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff]/;
/** What must not begin a line: closing brackets, full stops, small kana, the mark of a long vowel. */
const notFirst =
  /[!%),.:;?\]}»’”…、。〉》」』】〕〗〟・：；？！，．）］｝ーぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々ゝゞヽヾ゛゜]/;
/** What must not end one: opening brackets, signs before an amount. */
const notLast = /[([{«‘“〈《「『【〔〖〝（［｛$£¥￥€]/;

export interface LineRules {
  readonly width: number;
  /** Lines at most; what does not fit ends in an ellipsis. */
  readonly most: number;
  /** Words may be split with a hyphen, where their language splits them. */
  readonly hyphenate?: boolean;
}

/** Breaks text into lines no wider than the width. Soft hyphens in it are shown only where a line ends. */
export function breakLines(text: string, lettering: Lettering, rules: LineRules): readonly string[] {
  const { width, most } = rules;
  const fits: Fits = Object.assign((line: string) => widthOf(shownOf(line), lettering) <= width, {
    isMonotone: isPlain(text, lettering.weight),
  });
  const lines: string[] = [];
  let rest = text;
  while (rest !== '') {
    if (fits(rest)) return [...lines, shownOf(rest)];
    if (lines.length === most - 1) return [...lines, shortened(shownOf(rest), fits)];
    const { end, hyphen } = breakAt(rest, fits, rules.hyphenate ? lettering.language : undefined);
    lines.push(shownOf(rest.slice(0, end)).trimEnd() + hyphen);
    rest = rest.slice(end).trimStart();
  }
  return lines;
}

/** Whether a line is narrow enough. `isMonotone`: a longer line is never narrower, so the last one that fits is searched for. */
interface Fits {
  (line: string): boolean;
  readonly isMonotone: boolean;
}

/** How many of 1 … count fit, from 1 on: with ever larger steps, then halved, where that gives the same as one by one. */
export function fitting(
  count: number,
  holds: (nth: number) => boolean,
  { isMonotone }: { readonly isMonotone: boolean },
): number {
  let fits = 0;
  if (!isMonotone) {
    while (fits < count && holds(fits + 1)) fits += 1;
    return fits;
  }
  let fails = 1;
  while (fails <= count && holds(fails)) {
    fits = fails;
    fails = Math.min(fails * 2, Math.max(count, fails + 1));
  }
  fails = Math.min(fails, count + 1);
  while (fails - fits > 1) {
    const middle = (fits + fails) >> 1;
    if (holds(middle)) fits = middle;
    else fails = middle;
  }
  return fits;
}

const shownOf = (text: string): string => text.replace(softHyphen, '');

interface Break {
  readonly end: number;
  readonly hyphen: '' | '-';
}

/** The last place where the line may end: between words, within one at a hyphen, else anywhere within it. */
function breakAt(text: string, fits: Fits, hyphenateIn: string | undefined): Break {
  const { end, next } = lastWholeWord(text, fits);
  if (hyphenateIn !== undefined || text.includes('\u00ad')) {
    const split = splitWord(text, end, next, fits, hyphenateIn ?? '');
    if (split > end) return { end: split, hyphen: '-' };
  }
  return { end: end > 0 ? end : longestStart(text, fits), hyphen: '' };
}

/** After a blank, hyphen (not a minus) or slash, or between ideographs. A % or a unit stays with its number. `next` is where the following word ends. */
function lastWholeWord(text: string, fits: Fits): { end: number; next: number } {
  const points = breakPoints(text);
  const last = fitting(points.length, (nth) => fits(text.slice(0, points[nth - 1])), fits);
  return { end: points[last - 1] ?? 0, next: points[last] ?? text.length };
}

/** A blank, unless a % follows, or what is taken for the unit of a number (250 g); a hyphen or slash within a word. */
const betweenWords = / (?!%)(?<!\d (?=\p{L}{1,3}(?:\P{L}|$)))|(?<=\S)[-–/](?=\S)/gu;

/** Each as the length of what stands before it. */
function breakPoints(text: string): readonly number[] {
  const points: number[] = [];
  for (const found of text.matchAll(betweenWords)) points.push(found.index + (found[0] === ' ' ? 0 : 1));
  if (!ideograph.test(text)) return points;
  for (let at = 1; at < text.length; at += 1) {
    const [before = '', after = ''] = [text[at - 1], text[at]];
    const isBetween = (ideograph.test(before) || ideograph.test(after)) && before !== ' ' && after !== ' ';
    // A number stays with its unit.
    if (isBetween && !/\d/.test(before) && !notFirst.test(after) && !notLast.test(before)) points.push(at);
  }
  return points.sort((a, b) => a - b);
}

/** What lies between places where a line may end. */
export function wordsOf(text: string): readonly string[] {
  const words: string[] = [];
  let from = 0;
  for (const at of [...breakPoints(text), text.length]) {
    words.push(shownOf(text.slice(from, at)).trim());
    from = at;
  }
  return words;
}

/** Where the word after `start` can be split so that its first part still fits; 0 where it cannot. */
function splitWord(
  text: string,
  start: number,
  next: number,
  fits: (line: string) => boolean,
  language: string,
): number {
  const lead = /^\s*/.exec(text.slice(start))?.[0].length ?? 0;
  const word = text.slice(start + lead, next);
  // The letters alone: brackets and commas around a word are no part of what a language knows.
  const letters = /[\p{L}\p{M}\u00ad]+/u.exec(word);
  if (!letters) return 0;
  const from = start + lead + letters.index;
  const points = hyphenationPoints(letters[0], language).map(
    (length) => from + markedLength(letters[0], length),
  );
  return points.findLast((at) => fits(`${text.slice(0, at)}-`)) ?? 0;
}

/** How far into a word with soft hyphens its first letters reach. */
function markedLength(word: string, letters: number): number {
  let [at, seen] = [0, 0];
  for (; at < word.length && seen < letters; at += 1) if (word[at] !== '\u00ad') seen += 1;
  return at;
}

/** At least one character, or the loop would never end. */
function longestStart(text: string, fits: Fits, starts: (start: string) => boolean = fits): number {
  const ends: number[] = [];
  for (const character of text) ends.push((ends.at(-1) ?? 0) + character.length);
  const count = fitting(ends.length, (nth) => nth === 1 || starts(text.slice(0, ends[nth - 1])), fits);
  return ends[Math.max(count, 1) - 1] ?? 0;
}

/** How much something is reduced, or holds of something: half of it would be another statement. */
const percentage = /[-–−+]?(?<!\d)\d+(?:[.,]\d+)?[ \u00a0\u202f]?%|%[ \u00a0\u202f]?\d+/;

function shortened(text: string, fits: Fits): string {
  const cut = cutOff(text, fits, '');
  const [percent] = percentage.exec(text) ?? [];
  if (percent === undefined || cut.includes(percent)) return cut;
  const before = cutOff(text.slice(0, text.indexOf(percent)), fits, ` ${percent}`);
  return before === '' ? percent : before;
}

/** The beginning of the text, an ellipsis, and what stands behind it; empty where that does not fit. */
function cutOff(text: string, fits: Fits, behind: string): string {
  const end = longestStart(text, fits, (start) => fits(start.trimEnd() + ellipsis + behind));
  // Begins where a run does: from each character of it, a long one would be looked through again.
  const kept = text.slice(0, end).replace(/(?<![\s,;:./–-])[\s,;:./–-]+$/, '');
  return fits(kept + ellipsis + behind) ? kept + ellipsis + behind : '';
}
