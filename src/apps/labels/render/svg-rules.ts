import { sizeOfImage } from './embedded-image.ts';
import { TemplateError } from './errors.ts';
import { checkDashedOutline, checkedAttribute } from './svg-attributes.ts';
import type { XmlElement } from './xml.ts';

/** The elements that a template may use. None can run, load or refer to anything outside the template. */
const shapes = ['rect', 'circle', 'ellipse', 'line', 'polyline', 'polygon', 'path'];
const text = ['text', 'tspan'];
const groups = [
  'svg',
  'g',
  'defs',
  'use',
  'symbol',
  'clipPath',
  'mask',
  'linearGradient',
  'radialGradient',
  'stop',
  'image',
];
const allowed = new Set([...shapes, ...text, ...groups]);
/** Metadata of drawing programs, which no image needs. */
const dropped = new Set(['title', 'desc', 'metadata']);

export interface RootLimits {
  readonly side: number;
  readonly pixels: number;
}

/** Width and height in pixels; a template is made for one size of panel. */
export function checkRoot(root: XmlElement, limits: RootLimits): { width: number; height: number } {
  const { line } = root;
  if (root.name !== 'svg')
    throw new TemplateError(`The template must be an <svg>; this is <${root.name}>.`, { line });
  const xmlns = root.attributes.get('xmlns');
  if (xmlns !== 'http://www.w3.org/2000/svg')
    throw new TemplateError('<svg> must have xmlns="http://www.w3.org/2000/svg".', { line });
  const side = (name: 'width' | 'height'): number => {
    const written = root.attributes.get(name);
    const value = /^(\d+)(?:px)?$/.exec(written ?? '')?.[1];
    if (value === undefined || Number(value) < 1)
      throw new TemplateError(`<svg> must have its ${name} in whole pixels, such as ${name}="296".`, {
        line,
      });
    return Number(value);
  };
  const [width, height] = [side('width'), side('height')];
  if (width > limits.side || height > limits.side || width * height > limits.pixels)
    throw new TemplateError(
      `The template is ${width} × ${height} pixels; ${limits.side} a side and ${limits.pixels} in all are the most.`,
      { line },
    );
  const viewBox = root.attributes.get('viewBox');
  if (
    viewBox !== undefined &&
    viewBox
      .trim()
      .split(/[\s,]+/)
      .join(' ') !== `0 0 ${width} ${height}`
  )
    throw new TemplateError(
      `viewBox="${viewBox}" would scale the template, and bars and letters would miss the pixels; write viewBox="0 0 ${width} ${height}" or leave it out.`,
      { line },
    );
  return { width, height };
}

/** The attributes that stay; undefined for an element that is left out. Throws for one that is not allowed. */
export function checkElement(element: XmlElement): readonly (readonly [string, string])[] | undefined {
  const { name, line } = element;
  if (dropped.has(name) || name.includes(':')) return undefined;
  if (!allowed.has(name))
    throw new TemplateError(
      `<${name}> is not taken in a template${name.startsWith('tally-') ? '; there is tally-text, tally-price and tally-barcode' : ''}.`,
      { line },
    );
  checkDashedOutline(name, element.attributes, line);
  return [...element.attributes].flatMap(([attribute, value]) => {
    if (attribute === 'tally-if' || attribute === 'tally-unless') return [];
    const checked = checkedAttribute(name, attribute, value, line);
    if (checked === undefined) return [];
    checkReferences(name, attribute, checked, line);
    return [[attribute, checked] as const];
  });
}

function checkReferences(element: string, attribute: string, value: string, line: number): void {
  if (attribute === 'href' || attribute === 'xlink:href') {
    if (value.includes('{{'))
      throw new TemplateError(
        `<${element}> has a placeholder in its ${attribute}; a reference must stand as it is.`,
        { line },
      );
    const local = element === 'image' ? /^data:image\/(?:png|jpeg);base64,[A-Za-z0-9+/=\s]*$/ : /^#/;
    if (!local.test(value))
      throw new TemplateError(
        `<${element}> refers to "${value.slice(0, 60)}"; ${element === 'image' ? 'an image must be in the template, as data:image/png;base64,…' : 'only what is in the template can be referred to, as #name'}.`,
        { line },
      );
  }
  // A value could name one that the costs were not counted for.
  if ((attribute === 'id' || attribute === 'mask' || attribute === 'clip-path') && value.includes('{{'))
    throw new TemplateError(
      `<${element}> has a placeholder in its ${attribute}; a reference must stand as it is.`,
      { line },
    );
  for (const declaration of attribute === 'style' ? value.split(';') : [value]) {
    let references = 0;
    for (const [, target = ''] of declaration.matchAll(/url\(\s*["']?([^)"']*)/gi)) {
      if (!target.startsWith('#'))
        throw new TemplateError(
          `<${element}> refers to url(${target.slice(0, 60)}); only url(#name) is taken.`,
          { line },
        );
      references += 1;
      if (references > 1)
        throw new TemplateError(`<${element}> has more than one url() in its ${attribute}; it takes one.`, {
          line,
        });
    }
  }
}

export interface CostLimits {
  /** Elements that are drawn through <use>, masks and clip paths. */
  readonly elements: number;
  /** Pixels of all embedded images, each as often as it is drawn. */
  readonly imagePixels: number;
  /** Pixels of all layers: what has an opacity, a mask or a clip path is drawn by itself first. */
  readonly layerPixels: number;
}

/**
 * Counts what the renderer would draw, before anything is drawn: with <use>, masks and clip paths ten elements can become a
 * billion, and an embedded image of a few kilobytes can have billions of pixels.
 */
export function checkCosts(
  root: XmlElement,
  panel: { readonly width: number; readonly height: number },
  most: CostLimits,
): void {
  const all = elementsIn(root);
  const byId = new Map<string, XmlElement>();
  for (const element of all) {
    const id = element.attributes.get('id');
    if (id !== undefined && !byId.has(id)) byId.set(id, element);
  }
  const total = contentOf(all);
  const layers = Math.floor(most.layerPixels / (panel.width * panel.height));
  /** Each content is looked through once, however often it is referred to. */
  const contents = new Map<XmlElement, Content>();
  let drawn = 0;
  const refuseTooMuch = (): void => {
    if (drawn > most.elements)
      throw new TemplateError(
        `The <use> elements, masks and clip paths come to more than ${most.elements} elements.`,
      );
    if (total.imagePixels > most.imagePixels)
      throw new TemplateError(`The images in the template come to more than ${most.imagePixels} pixels.`);
    if (total.layers > layers)
      throw new TemplateError(
        `More than ${layers} elements have an opacity, a mask or a clip path; that is the most in this size.`,
      );
  };
  refuseTooMuch();
  for (const element of all)
    for (const target of targetsOf(element, byId)) {
      const content = contents.get(target) ?? contentOf(elementsIn(target));
      contents.set(target, content);
      refuseNested(element, target, content);
      drawn += content.elements;
      total.layers += content.layers;
      total.imagePixels += content.imagePixels;
      // Within the loop: a template may have more references than anybody can count.
      refuseTooMuch();
    }
}

/** What an element draws beside itself. */
function* targetsOf(element: XmlElement, byId: ReadonlyMap<string, XmlElement>): Generator<XmlElement> {
  const { attributes, name, line } = element;
  if (name === 'use') {
    const reference = (attributes.get('href') ?? attributes.get('xlink:href') ?? '').slice(1);
    const target = byId.get(reference);
    if (!target) throw new TemplateError(`<use> refers to #${reference}, which is not there.`, { line });
    yield target;
  }
  for (const [attribute, value] of attributes)
    if (attribute === 'mask' || attribute === 'clip-path' || attribute === 'style')
      for (const [, reference = ''] of value.matchAll(/url\(\s*["']?#([^)"']*)/gi)) {
        const target = byId.get(reference.trim());
        if (target && (target.name === 'mask' || target.name === 'clipPath')) yield target;
      }
}

/** What an element and all within it come to. */
interface Content {
  readonly elements: number;
  layers: number;
  imagePixels: number;
  /** It has <use> or one of our elements inside. */
  readonly refersOn: boolean;
  readonly isMasked: boolean;
}

/** What is referred to must not refer on: each step could double what is drawn. */
function refuseNested(element: XmlElement, target: XmlElement, { refersOn, isMasked }: Content): void {
  const { line } = element;
  const reference = target.attributes.get('id') ?? '';
  if (refersOn)
    throw new TemplateError(
      `<${element.name}> refers to #${reference}, which has <use> or a tally- element inside; write it out.`,
      { line },
    );
  if (isMasked && (target.name === 'mask' || target.name === 'clipPath'))
    throw new TemplateError(`<${target.name}> #${reference} has a mask or a clip path inside.`, {
      line: target.line,
    });
}

function contentOf(elements: readonly XmlElement[]): Content {
  let [layers, imagePixels] = [0, 0];
  let [refersOn, isMasked] = [false, false];
  for (const element of elements) {
    const { attributes, name } = element;
    const style = attributes.get('style') ?? '';
    const masks =
      attributes.has('mask') || attributes.has('clip-path') || /(?:mask|clip-path)\s*:/i.test(style);
    if (masks || attributes.has('opacity') || /opacity\s*:/i.test(style)) layers += 1;
    if (name === 'image') imagePixels += pixelsOf(element);
    isMasked ||= masks;
    refersOn ||= name === 'use' || name.startsWith('tally-');
  }
  return { elements: elements.length, layers, imagePixels, refersOn, isMasked };
}

function pixelsOf({ attributes, line }: XmlElement): number {
  const reference = attributes.get('href') ?? attributes.get('xlink:href');
  if (reference === undefined) return 0;
  const size = sizeOfImage(Buffer.from(reference.slice(reference.indexOf(',') + 1), 'base64'));
  if (!size) throw new TemplateError('<image> has content that is neither a PNG nor a JPEG.', { line });
  return size.width * size.height;
}

const elementsIn = (element: XmlElement): XmlElement[] => [
  element,
  ...element.children.flatMap((child) => (typeof child === 'string' ? [] : elementsIn(child))),
];
