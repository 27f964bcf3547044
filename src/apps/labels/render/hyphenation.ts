import { createRequire } from 'node:module';

type Hyphenate = (text: string) => string;

const require = createRequire(import.meta.url);

/** Languages with patterns for the ends of lines; each is read when a word of it first has to be split. */
const languages = new Set(
  'af be bg ca cs cy da de el en en-gb es et eu fi fr ga gl hr hu is it lt lv mk nb nl nn no pl pt ro ru sk sl sq sr sv tr uk'.split(
    ' ',
  ),
);
const read = new Map<string, Hyphenate>();

const softHyphen = '\u00ad';

/** Places within a word where a line may end with a hyphen, each as the length of what stands before it. */
export function hyphenationPoints(word: string, locale = ''): readonly number[] {
  const marked = word.includes(softHyphen) ? word : (hyphenator(locale)?.(word) ?? word);
  const points: number[] = [];
  let length = 0;
  for (const part of marked.split(softHyphen)) {
    length += part.length;
    points.push(length);
  }
  return points.slice(0, -1);
}

function hyphenator(locale: string): Hyphenate | undefined {
  const [base = ''] = locale.toLowerCase().split('-');
  const language = [locale.toLowerCase(), base].find((name) => languages.has(name));
  if (language === undefined) return undefined;
  let hyphenate = read.get(language);
  if (!hyphenate) {
    const patterns = require(`hyphen/${language}`) as { hyphenateSync: Hyphenate };
    hyphenate = patterns.hyphenateSync;
    read.set(language, hyphenate);
  }
  return hyphenate;
}
