import { type Drawn, type DrawnElement, draw, drawnElements } from './drawn.ts';
import { TemplateError } from './errors.ts';
import {
  type Filling,
  fillSlot,
  namesIn,
  optionalValue,
  type Piece,
  readPieces,
  type Slot,
} from './placeholders.ts';
import { checkCosts, checkElement, checkRoot } from './svg-rules.ts';
import { escapeXml, readXml, type XmlElement, type XmlNode } from './xml.ts';

/** A parsed and valid template. */
export interface Template {
  /** Names of the required values. */
  readonly placeholders: readonly string[];
  readonly width: number;
  readonly height: number;
  /** It has text that SVG itself lays out, so the renderer needs the fonts. */
  readonly hasSvgText: boolean;
  readonly parts: readonly Part[];
}

/** Fixed text, placeholders, drawn elements and conditional parts. */
export type Part = string | Slot | Drawn | Conditional;
interface Conditional {
  readonly name: string;
  /** Drawn only if the value is not empty, or only if it is. */
  readonly wanted: 'filled' | 'empty';
  readonly parts: readonly Part[];
}

/** More than any label design needs; anything larger is a mistake or an attack. */
export const limits = {
  bytes: 256 * 1024,
  elements: 2000,
  side: 2000,
  pixels: 1_000_000,
  imagePixels: 4_000_000,
  layerPixels: 64_000_000,
  /** Each takes milliseconds to encode. */
  barcodes: 16,
  /** Of the filled template: letters and bars are paths by then. */
  filledBytes: 8 * 1024 * 1024,
} as const;

/**
 * Parses a template: SVG with `{{placeholders}}`, `tally-if`, and our elements. Throws TemplateError, with the line, for
 * anything that would make rendering fail or reach outside the template.
 */
export function readTemplate(svg: string): Template {
  if (Buffer.byteLength(svg) > limits.bytes)
    throw new TemplateError(
      `The template has ${Buffer.byteLength(svg)} bytes; ${limits.bytes} are the most.`,
    );
  const root = readXml(svg, limits.elements);
  const { width, height } = checkRoot(root, limits);
  const compiler = new Compiler();
  compiler.element(root);
  checkCosts(root, { width, height }, limits);
  return {
    placeholders: [...compiler.names].sort(),
    width,
    height,
    hasSvgText: compiler.hasSvgText,
    parts: compiler.parts(),
  };
}

/** The template with its values, as complete SVG. */
export function fillTemplate(template: Template, filling: Filling): string {
  return fillParts(template.parts, filling, { left: limits.filledBytes });
}

function fillParts(parts: readonly Part[], filling: Filling, room: { left: number }): string {
  let svg = '';
  for (const part of parts) {
    const before = svg.length;
    if (typeof part === 'string') svg += part;
    else if ('element' in part) svg += draw(part, filling);
    else if ('wanted' in part) {
      const filled = optionalValue(part.name, filling) !== '';
      if (filled === (part.wanted === 'filled')) svg += fillParts(part.parts, filling, room);
      continue;
    } else svg += escapeXml(fillSlot(part, filling));
    room.left -= svg.length - before;
    if (room.left < 0)
      throw new TemplateError(`The filled template has more than ${limits.filledBytes} characters.`);
  }
  return svg;
}

const conditions = { 'tally-if': 'filled', 'tally-unless': 'empty' } as const;

class Compiler {
  readonly names = new Set<string>();
  hasSvgText = false;
  /** Not required if a condition around it names it: without a value nothing is drawn. */
  readonly #known: string[] = [];
  #parts: Part[] = [];
  #barcodes = 0;

  parts(): readonly Part[] {
    return this.#parts;
  }

  element(element: XmlElement): void {
    const [condition, ...others] = Object.entries(conditions).filter(([name]) =>
      element.attributes.has(name),
    );
    if (others.length > 0)
      throw new TemplateError(
        `<${element.name}> has both tally-if and tally-unless; put one into a <g> around it.`,
        { line: element.line },
      );
    if (!condition) return this.#unconditional(element);
    const [attribute, wanted] = condition;
    const name = element.attributes.get(attribute) ?? '';
    if (!/^[A-Za-z][\w.-]{0,63}$/.test(name))
      throw new TemplateError(`${attribute}="${name}" must name a placeholder, without braces.`, {
        line: element.line,
      });
    const outer = this.#parts;
    this.#parts = [];
    this.#known.push(name);
    this.#unconditional(element);
    this.#known.pop();
    outer.push({ name, wanted, parts: this.#parts });
    this.#parts = outer;
  }

  #unconditional(element: XmlElement): void {
    if (isDrawn(element.name)) return this.#drawn(element, element.name);
    const kept = checkElement(element);
    if (!kept) return;
    if (element.name === 'text') this.hasSvgText = true;
    this.#write(`<${element.name}`);
    for (const [name, value] of kept) {
      this.#write(` ${name}="`);
      this.#pieces(readPieces(value, element.line));
      this.#write('"');
    }
    if (element.children.length === 0) return this.#write('/>');
    this.#write('>');
    for (const child of element.children) this.#child(child, element.line);
    this.#write(`</${element.name}>`);
  }

  #child(child: XmlNode, line: number): void {
    if (typeof child === 'string') this.#pieces(readPieces(child, line));
    else this.element(child);
  }

  #drawn(element: XmlElement, name: DrawnElement): void {
    if (name === 'tally-barcode') this.#barcodes += 1;
    if (this.#barcodes > limits.barcodes)
      throw new TemplateError(`The template has more than ${limits.barcodes} barcodes.`, {
        line: element.line,
      });
    const known: readonly string[] = drawnElements[name];
    const attributes = new Map<string, readonly Piece[]>();
    for (const [attribute, value] of element.attributes) {
      if (attribute in conditions) continue;
      if (!known.includes(attribute))
        throw new TemplateError(`<${name}> takes no ${attribute}; it takes ${known.join(', ')}.`, {
          line: element.line,
        });
      attributes.set(attribute, readPieces(value, element.line));
    }
    const content: Piece[] = [];
    for (const child of element.children) {
      if (typeof child !== 'string')
        throw new TemplateError(`<${child.name}> cannot stand inside <${name}>.`, { line: child.line });
      content.push(...readPieces(child, element.line));
    }
    if (name !== 'tally-text' && content.some((piece) => typeof piece !== 'string' || piece.trim() !== ''))
      throw new TemplateError(`<${name}> has no content; what it shows is in its value.`, {
        line: element.line,
      });
    this.#need(namesIn([...content, ...[...attributes.values()].flat()]));
    if (name === 'tally-price') this.#need(['currency', 'locale']);
    const drawn: Drawn = { element: name, attributes, content, line: element.line };
    this.#parts.push(drawn);
    probe(drawn);
  }

  #pieces(pieces: readonly Piece[]): void {
    this.#need(namesIn(pieces));
    for (const piece of pieces) {
      if (typeof piece === 'string') this.#write(escapeXml(piece));
      else this.#parts.push(piece);
    }
  }

  #need(names: readonly string[]): void {
    for (const name of names) if (!this.#known.includes(name)) this.names.add(name);
  }

  #write(text: string): void {
    const last = this.#parts.at(-1);
    if (typeof last === 'string') this.#parts[this.#parts.length - 1] = last + text;
    else this.#parts.push(text);
  }
}

const isDrawn = (name: string): name is DrawnElement => Object.hasOwn(drawnElements, name);

/** A valid sample of typical length for each type of barcode. */
const standIns: Readonly<Record<string, string>> = {
  gtin: '4006381333931',
  ean13: '4006381333931',
  ean8: '96385074',
  upca: '036000291452',
  code128: '1234',
  qrcode: '1234',
};

/**
 * Draws it with a sample value, so that a wrong attribute is found when the template is saved and not at the first label.
 * Attributes with placeholders can be checked only when they are filled.
 */
function probe(drawn: Drawn): void {
  const type = drawn.attributes.get('type')?.join('') ?? '';
  const value = drawn.element === 'tally-price' ? '1' : (standIns[type] ?? '1234');
  const shown = ([name, pieces]: readonly [string, readonly Piece[]]) =>
    [name, name === 'value' ? [value] : name === 'fill' ? ['#000'] : pieces] as const;
  const attributes = new Map([...drawn.attributes].map(shown));
  if ([...attributes.values()].flat().some((piece) => typeof piece !== 'string')) return;
  draw(
    { ...drawn, attributes, content: ['x'] },
    { values: { currency: 'EUR', locale: 'en' }, palette: 'bw' },
  );
}
