import { SaxesParser } from 'saxes';
import { TemplateError } from './errors.ts';

/** The XML that a template may use: no document type, no own entities, no external references. */
export interface XmlElement {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlNode[];
  readonly line: number;
}
export type XmlNode = XmlElement | string;

/** Deeper than any template; recursion stays far from the stack's end. */
const maxDepth = 40;

/** What XML 1.0 cannot hold. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones that XML forbids
const forbidden = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;

/** Text as XML can hold it, also between quotes. What XML cannot hold at all becomes U+FFFD. */
export function escapeXml(text: string): string {
  return text
    .replace(forbidden, '\ufffd')
    .replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** An & that begins no reference: a reference ends with ; soon. */
const looseAmpersand = /&(?![^\s;&<]{1,40};)\S{0,40}/y;
/** What may hold any &, and what ends it. */
const unparsed = [
  ['<!--', '-->'],
  ['<![CDATA[', ']]>'],
] as const;

/** The first & that begins no reference, outside of comments and CDATA. Looks at each character once. */
function findLooseAmpersand(source: string): { readonly text: string; readonly index: number } | undefined {
  for (let at = 0; at < source.length; ) {
    const block = unparsed.find(([begin]) => source.startsWith(begin, at));
    if (block) {
      const end = source.indexOf(block[1], at + block[0].length);
      // It never ends: the parser says so.
      if (end < 0) return undefined;
      at = end + block[1].length;
      continue;
    }
    looseAmpersand.lastIndex = at;
    const found = source[at] === '&' ? looseAmpersand.exec(source) : null;
    if (found) return { text: found[0], index: at };
    const next = /[&<]/g;
    next.lastIndex = at + 1;
    at = next.exec(source)?.index ?? source.length;
  }
  return undefined;
}

/** Reads a document into its root element; throws TemplateError with the line of what is wrong. */
export function readXml(source: string, maxElements: number): XmlElement {
  return new Reader(source.replace(/^\ufeff/, ''), maxElements).document();
}

interface OpenElement extends XmlElement {
  readonly attributes: Map<string, string>;
  readonly children: XmlNode[];
}

/** Builds the tree from the parser's events, and explains errors to the author of a template. */
class Reader {
  readonly #source: string;
  readonly #maxElements: number;
  readonly #parser = new SaxesParser({ forceXMLVersion: true, defaultXMLVersion: '1.0' });
  readonly #open: OpenElement[] = [];
  #root: XmlElement | undefined;
  #latest: OpenElement | undefined;
  #elements = 0;

  constructor(source: string, maxElements: number) {
    this.#source = source;
    this.#maxElements = maxElements;
  }

  document(): XmlElement {
    // The parser takes half a surrogate pair together with the character behind it, be that a <.
    const foreign = this.#source.search(forbidden);
    if (foreign >= 0) fail('a character that XML cannot hold', this.#lineAt(foreign));
    // The parser would look for the ; to the end of the document.
    const loose = findLooseAmpersand(this.#source);
    if (loose) fail(`${loose.text} is not known; write &amp; for &`, this.#lineAt(loose.index));
    const parser = this.#parser;
    parser.on('error', ({ message }) => this.#malformed(message.replace(/^\d+:\d+: /, '')));
    parser.on('doctype', () => this.#fail(noDoctype));
    parser.on('processinginstruction', () => this.#fail(noDeclaration));
    parser.on('opentagstart', ({ name }) => this.#begin(name));
    parser.on('opentag', ({ attributes }) => {
      for (const [name, value] of Object.entries(attributes)) this.#open.at(-1)?.attributes.set(name, value);
    });
    parser.on('closetag', () => {
      this.#latest = this.#open.pop();
    });
    const add = (text: string): void => void this.#open.at(-1)?.children.push(text);
    parser.on('text', add);
    parser.on('cdata', add);
    parser.write(this.#source).close();
    return this.#root ?? this.#fail(noRoot);
  }

  #begin(name: string): void {
    // The parser has read the character behind the name, too.
    const isLineOver = /[\r\n]/.test(this.#source[this.#parser.position - 1] ?? '');
    const line = this.#parser.line - (isLineOver ? 1 : 0);
    if (this.#open.length >= maxDepth) fail(`elements lie more than ${maxDepth} deep`, line);
    this.#elements += 1;
    if (this.#elements > this.#maxElements) fail(`more than ${this.#maxElements} elements`, line);
    const element: OpenElement = { name, attributes: new Map(), children: [], line };
    this.#open.at(-1)?.children.push(element);
    this.#root ??= element;
    this.#latest = element;
    this.#open.push(element);
  }

  #malformed(message: string): never {
    const { name = '', line } = this.#latest ?? {};
    const read = this.#source.slice(0, this.#parser.position);
    const [, detail = ''] = /: (.*?)\.?$/.exec(message) ?? [];
    if (message.startsWith('unclosed tag'))
      throw new TemplateError(`<${detail}> is never closed`, { line: this.#open.at(-1)?.line ?? 1 });
    if (message === 'unexpected close tag.')
      this.#fail(`${/<\/[^<]*$/.exec(read)?.[0]} closes nothing: <${name}> of line ${line} is still open`);
    if (message.startsWith('duplicate attribute'))
      this.#fail(`attribute ${detail} stands twice in <${name}>`);
    if (/entity/.test(message)) this.#fail(`${/&[^&]*$/.exec(read)?.[0]} is not known; write &amp; for &`);
    if (/outside of root|only one root|unmatched closing/.test(message))
      this.#fail(this.#root === undefined ? noRoot : `text after </${this.#root.name}>`);
    this.#fail(problems[message]?.(name) ?? message.replace(/\.$/, ''));
  }

  #fail(problem: string): never {
    return fail(problem, this.#parser.line);
  }

  #lineAt(index: number): number {
    return this.#source.slice(0, index).split('\n').length;
  }
}

const noRoot = 'the template must begin with <svg';
const noDoctype = 'a document type (<!DOCTYPE …>) is not taken; leave it out';
const noDeclaration = 'declarations and processing instructions are not taken; leave them out';

/** Translates the parser's messages into terms of the element that it was reading. */
const problems: Readonly<Record<string, (element: string) => string>> = {
  'document must contain a root element.': () => noRoot,
  'inappropriately located doctype declaration.': () => noDoctype,
  'incorrect syntax.': () => noDeclaration,
  'unquoted attribute value.': (element) => `the value of an attribute of <${element}> is not in quotes`,
  'attribute without value.': (element) => `an attribute of <${element}> has no value`,
  'disallowed character in attribute name.': (element) =>
    `the name of an attribute of <${element}> is missing or malformed`,
  'no whitespace between attributes.': (element) =>
    `a space is missing between the attributes of <${element}>`,
  'disallowed character in tag name': () => 'the name of an element is missing or malformed',
  'disallowed character.': (element) => `the value of an attribute of <${element}> holds a <; write &lt;`,
};

function fail(problem: string, line: number): never {
  throw new TemplateError(`The template is not well-formed: ${problem}.`, { line });
}
