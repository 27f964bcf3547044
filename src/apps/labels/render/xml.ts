import { TemplateError } from './errors.ts';

/** Just enough XML for a template: no document type, no entities of one's own, nothing that reaches outside. */
export interface XmlElement {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlNode[];
  readonly line: number;
}
export type XmlNode = XmlElement | string;

/** Deeper than any template; recursion stays far from the stack's end. */
const maxDepth = 40;

const named: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
const nameAt = /[A-Za-z_][\w.:-]*/y;
const spaceAt = /\s*/y;
/** What XML 1.0 can hold. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones that XML forbids
const forbidden = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;

/** Text as XML can hold it, also between quotes. What XML cannot hold at all becomes U+FFFD. */
export function escapeXml(text: string): string {
  return text
    .replace(forbidden, '\ufffd')
    .replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** Reads a document into its root element; throws TemplateError with the line of what is wrong. */
export function readXml(source: string, maxElements: number): XmlElement {
  return new Reader(source, maxElements).document();
}

class Reader {
  readonly #source: string;
  readonly #maxElements: number;
  #at = 0;
  #elements = 0;

  constructor(source: string, maxElements: number) {
    this.#source = source.replace(/^\ufeff/, '');
    this.#maxElements = maxElements;
  }

  document(): XmlElement {
    if (this.#source.search(forbidden) >= 0) {
      this.#at = this.#source.search(forbidden);
      this.#fail('a character that XML cannot hold');
    }
    if (this.#source.startsWith('<?xml')) this.#skipPast('?>', 'the XML declaration');
    this.#betweenElements();
    if (this.#source[this.#at] !== '<') this.#fail('the template must begin with <svg');
    const root = this.#element(1);
    this.#betweenElements();
    if (this.#at < this.#source.length) this.#fail(`text after </${root.name}>`);
    return root;
  }

  #element(depth: number): XmlElement {
    const line = this.#line();
    if (depth > maxDepth) this.#fail(`elements lie more than ${maxDepth} deep`);
    this.#elements += 1;
    if (this.#elements > this.#maxElements) this.#fail(`more than ${this.#maxElements} elements`);
    this.#at += 1;
    const name = this.#name('an element');
    const attributes = this.#attributes(name);
    if (this.#take('/>')) return { name, attributes, children: [], line };
    if (!this.#take('>')) this.#fail(`<${name}> is not closed with >`);
    const children = this.#children(name, line, depth);
    return { name, attributes, children, line };
  }

  #children(parent: string, line: number, depth: number): XmlNode[] {
    const children: XmlNode[] = [];
    for (;;) {
      const next = this.#source.indexOf('<', this.#at);
      if (next < 0) throw new TemplateError(`<${parent}> is never closed`, { line });
      if (next > this.#at) {
        const text = this.#decode(this.#source.slice(this.#at, next));
        this.#at = next;
        children.push(text);
      }
      if (this.#source.startsWith('<!--', this.#at)) this.#skipPast('-->', 'a comment');
      else if (this.#source.startsWith('<![CDATA[', this.#at)) {
        const start = this.#at + '<![CDATA['.length;
        this.#skipPast(']]>', 'CDATA');
        children.push(this.#source.slice(start, this.#at - 3));
      } else if (this.#source.startsWith('</', this.#at)) {
        this.#at += 2;
        const name = this.#name('a closing tag');
        if (name !== parent)
          this.#fail(`</${name}> closes nothing: <${parent}> of line ${line} is still open`);
        this.#space();
        if (!this.#take('>')) this.#fail(`</${name} is not closed with >`);
        return children;
      } else if (/[!?]/.test(this.#source[this.#at + 1] ?? '')) this.#refuseDeclaration();
      else children.push(this.#element(depth + 1));
    }
  }

  #attributes(element: string): Map<string, string> {
    const attributes = new Map<string, string>();
    for (;;) {
      const before = this.#at;
      this.#space();
      const next = this.#source[this.#at];
      if (next === undefined || next === '>' || next === '/') return attributes;
      if (this.#at === before) this.#fail(`a space is missing between the attributes of <${element}>`);
      const name = this.#name(`an attribute of <${element}>`);
      this.#space();
      if (!this.#take('=')) this.#fail(`attribute ${name} of <${element}> has no value`);
      this.#space();
      const quote = this.#source[this.#at];
      if (quote !== '"' && quote !== "'") this.#fail(`the value of ${name} is not in quotes`);
      const end = this.#source.indexOf(quote as string, this.#at + 1);
      if (end < 0) this.#fail(`the value of ${name} has no closing quote`);
      const value = this.#source.slice(this.#at + 1, end);
      if (value.includes('<')) this.#fail(`the value of ${name} holds a <; write &lt;`);
      if (attributes.has(name)) this.#fail(`attribute ${name} stands twice in <${element}>`);
      attributes.set(name, this.#decode(value));
      this.#at = end + 1;
    }
  }

  /** Comments and blanks before and after the root. */
  #betweenElements(): void {
    for (;;) {
      this.#space();
      if (this.#source.startsWith('<!--', this.#at)) this.#skipPast('-->', 'a comment');
      else if (/^<[!?]/.test(this.#source.slice(this.#at, this.#at + 2))) this.#refuseDeclaration();
      else return;
    }
  }

  #refuseDeclaration(): never {
    if (/^<!doctype/i.test(this.#source.slice(this.#at, this.#at + 9)))
      this.#fail('a document type (<!DOCTYPE …>) is not taken; leave it out');
    this.#fail('declarations and processing instructions are not taken; leave them out');
  }

  #decode(text: string): string {
    if (!text.includes('&')) return text;
    return text.replace(/&([^;&\s]{0,40});?/g, (whole, reference: string) => {
      const character = whole.endsWith(';') ? resolve(reference) : undefined;
      return character ?? this.#fail(`${whole} is not known; write &amp; for &`);
    });
  }

  #name(what: string): string {
    nameAt.lastIndex = this.#at;
    const name = nameAt.exec(this.#source)?.[0];
    if (name === undefined) this.#fail(`the name of ${what} is missing or malformed`);
    this.#at = nameAt.lastIndex;
    return name as string;
  }

  #space(): void {
    spaceAt.lastIndex = this.#at;
    spaceAt.exec(this.#source);
    this.#at = spaceAt.lastIndex;
  }

  #take(text: string): boolean {
    if (!this.#source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  #skipPast(end: string, what: string): void {
    const found = this.#source.indexOf(end, this.#at);
    if (found < 0) this.#fail(`${what} is never closed`);
    this.#at = found + end.length;
  }

  #line(): number {
    let line = 1;
    for (
      let at = this.#source.indexOf('\n');
      at >= 0 && at < this.#at;
      at = this.#source.indexOf('\n', at + 1)
    )
      line += 1;
    return line;
  }

  #fail(problem: string): never {
    throw new TemplateError(`The template is not well-formed: ${problem}.`, { line: this.#line() });
  }
}

function resolve(reference: string): string | undefined {
  if (!reference.startsWith('#')) return named[reference];
  const code = /^#x[\da-f]+$/i.test(reference)
    ? Number.parseInt(reference.slice(2), 16)
    : /^#\d+$/.test(reference)
      ? Number(reference.slice(1))
      : Number.NaN;
  if (!(code > 0 && code <= 0x10ffff)) return undefined;
  const character = String.fromCodePoint(code);
  return character.search(forbidden) >= 0 ? undefined : character;
}
