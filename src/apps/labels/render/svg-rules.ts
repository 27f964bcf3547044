import { TemplateError } from './errors.ts';
import type { XmlElement } from './xml.ts';

/** The elements and attributes that a template may use. None can run, load or refer to anything outside the template. */
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
  return [...element.attributes].filter(([attribute, value]) => {
    if (attribute === 'tally-if' || attribute === 'tally-unless') return false;
    checkAttribute(name, attribute, value, line);
    return (
      !attribute.includes(':') ||
      attribute === 'xlink:href' ||
      attribute === 'xmlns:xlink' ||
      attribute === 'xml:space'
    );
  });
}

function checkAttribute(element: string, attribute: string, value: string, line: number): void {
  if (/^on/i.test(attribute))
    throw new TemplateError(`<${element}> has ${attribute}: a template cannot run anything.`, { line });
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
  for (const [, target = ''] of value.matchAll(/url\(\s*["']?([^)"']*)/gi))
    if (!target.startsWith('#'))
      throw new TemplateError(
        `<${element}> refers to url(${target.slice(0, 60)}); only url(#name) is taken.`,
        { line },
      );
}

/** Nested <use> elements can turn ten elements into a billion: count the result before anything is drawn. */
export function checkUses(root: XmlElement, most: number): void {
  const byId = new Map<string, XmlElement>();
  const uses: XmlElement[] = [];
  const walk = (element: XmlElement): void => {
    const id = element.attributes.get('id');
    if (id !== undefined && !byId.has(id)) byId.set(id, element);
    if (element.name === 'use') uses.push(element);
    for (const child of element.children) if (typeof child !== 'string') walk(child);
  };
  walk(root);
  let drawn = 0;
  for (const use of uses) {
    const reference = (use.attributes.get('href') ?? use.attributes.get('xlink:href') ?? '').slice(1);
    const target = byId.get(reference);
    if (!target)
      throw new TemplateError(`<use> refers to #${reference}, which is not there.`, { line: use.line });
    const inside = elementsIn(target);
    if (inside.some(({ name }) => name === 'use' || name.startsWith('tally-')))
      throw new TemplateError(
        `<use> refers to #${reference}, which has <use> or a tally- element inside; write it out.`,
        { line: use.line },
      );
    drawn += inside.length;
  }
  if (drawn > most)
    throw new TemplateError(`The <use> elements come to ${drawn} elements; ${most} are the most.`);
}

const elementsIn = (element: XmlElement): XmlElement[] => [
  element,
  ...element.children.flatMap((child) => (typeof child === 'string' ? [] : elementsIn(child))),
];
