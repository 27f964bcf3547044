import { TemplateError } from './errors.ts';

/**
 * The attributes that a template may use, by an allow-list: what is not in it could make the renderer work for minutes
 * (`filter`), or load something.
 */

/** Drawing: as attributes, and as properties within `style`. */
const presentation = [
  'fill',
  'fill-opacity',
  'fill-rule',
  'stroke',
  'stroke-width',
  'stroke-linecap',
  'stroke-linejoin',
  'stroke-miterlimit',
  'stroke-opacity',
  'stroke-dasharray',
  'stroke-dashoffset',
  'opacity',
  'color',
  'display',
  'visibility',
  'clip-path',
  'clip-rule',
  'mask',
  'mask-type',
  'stop-color',
  'stop-opacity',
  'shape-rendering',
  'text-rendering',
  'image-rendering',
  'font',
  'font-family',
  'font-size',
  'font-style',
  'font-weight',
  'font-stretch',
  'font-variant',
  'font-kerning',
  'letter-spacing',
  'word-spacing',
  'text-anchor',
  'text-decoration',
  'dominant-baseline',
  'alignment-baseline',
  'baseline-shift',
  'line-height',
  'writing-mode',
  'direction',
  'unicode-bidi',
  'paint-order',
  'overflow',
  'vector-effect',
  'transform',
  'transform-origin',
] as const;

const geometry = [
  'id',
  'xmlns',
  'x',
  'y',
  'x1',
  'y1',
  'x2',
  'y2',
  'cx',
  'cy',
  'r',
  'rx',
  'ry',
  'fx',
  'fy',
  'fr',
  'dx',
  'dy',
  'rotate',
  'width',
  'height',
  'd',
  'pathLength',
  'points',
  'offset',
  'viewBox',
  'preserveAspectRatio',
  'gradientUnits',
  'gradientTransform',
  'spreadMethod',
  'clipPathUnits',
  'maskUnits',
  'maskContentUnits',
  'textLength',
  'lengthAdjust',
  'href',
  'style',
] as const;

const kept: ReadonlySet<string> = new Set([...presentation, ...geometry]);
const properties: ReadonlySet<string> = new Set(presentation);

/** What drawing programs and browsers write, and no image depends on. */
const ignored =
  /^(?:class|role|version|baseProfile|enable-background|tabindex|lang|focusable|aria-.*|data-.*)$/;

/** Undefined: it is left out. Throws for one that is not allowed. */
export function checkedAttribute(
  element: string,
  attribute: string,
  value: string,
  line: number,
): string | undefined {
  const refuse = (problem: string) => new TemplateError(`<${element}> ${problem}.`, { line });
  if (/^on/i.test(attribute)) throw refuse(`has ${attribute}: a template cannot run anything`);
  if (attribute === 'xlink:href' || attribute === 'xmlns:xlink' || attribute === 'xml:space') return value;
  if (attribute.includes(':') || ignored.test(attribute)) return undefined;
  if (!kept.has(attribute)) throw refuse(`takes no ${attribute} in a template`);
  if (attribute === 'style') return checkedStyle(value, refuse);
  if (attribute === 'stroke-dasharray') checkDashes(element, value, refuse);
  return value;
}

/** The properties that may stay; others that drawing programs write are left out. */
function checkedStyle(style: string, refuse: (problem: string) => TemplateError): string {
  if (style.includes('{{')) throw refuse('has a placeholder in its style; use attributes, such as fill');
  if (style.includes('/*')) throw refuse('has a comment in its style; leave it out');
  return style
    .split(';')
    .flatMap((declaration) => {
      const [name = '', ...rest] = declaration.split(':');
      const property = name.trim().toLowerCase();
      if (/filter/.test(property)) throw refuse(`takes no ${property} in a template`);
      if (property === 'stroke-dasharray') throw refuse('must have its stroke-dasharray as an attribute');
      return properties.has(property) ? [`${property}:${rest.join(':').trim()}`] : [];
    })
    .join(';');
}

const dashed: ReadonlySet<string> = new Set([
  'rect',
  'circle',
  'ellipse',
  'line',
  'polyline',
  'polygon',
  'path',
]);

/** Dashes become a path of their own: short ones on a long line are a path of millions. */
function checkDashes(element: string, value: string, refuse: (problem: string) => TemplateError): void {
  if (value.trim() === 'none') return;
  if (!dashed.has(element)) throw refuse('takes no stroke-dasharray; write it on the shape itself');
  const dashes = value.trim().split(/[\s,]+/);
  if (dashes.length > 16 || !dashes.every((dash) => /^\d{1,4}(?:\.\d+)?(?:px)?$/.test(dash)))
    throw refuse(`has stroke-dasharray="${value.slice(0, 60)}"; it must be up to 16 numbers of pixels`);
  if (dashes.some((dash) => Number.parseFloat(dash) < 1))
    throw refuse(`has stroke-dasharray="${value.slice(0, 60)}"; dashes and gaps have at least 1 pixel`);
}

/** A dashed outline is short, and within the reach of the largest label. */
export function checkDashedOutline(
  element: string,
  attributes: ReadonlyMap<string, string>,
  line: number,
): void {
  const dashes = attributes.get('stroke-dasharray')?.trim() ?? 'none';
  if (dashes === 'none') return;
  const outline = [...attributes].filter(([name]) =>
    /^(?:[xy][12]?|c[xy]|r[xy]?|width|height|d|points)$/.test(name),
  );
  for (const [name, value] of outline)
    if (value.includes('{{') || value.length > 400 || /\d{5}|[eE]/.test(value.replace(/\.\d+/g, '')))
      throw new TemplateError(
        `<${element}> has a stroke-dasharray, so its ${name} must be short: up to 400 characters, numbers below 10000, no placeholder.`,
        { line },
      );
}
