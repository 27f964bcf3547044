import { messageOf } from '../../../engine/errors.ts';
import { TemplateError } from './errors.ts';
import { bundledFont, fontFamily, fontFiles } from './font.ts';
import type { LabelImage } from './image.ts';
import type { Panel } from './panel.ts';
import { hashOf, toPalette } from './pixels.ts';
import type { Filling } from './placeholders.ts';
import { encodePng } from './png.ts';
import { rasterizer } from './rasterizer.ts';
import { fillTemplate, type Template } from './template.ts';
import { drawable } from './text.ts';
import { FontNeeded, loadFont } from './wide-fonts.ts';

/**
 * Fills a template and renders it for a panel: the same template, values and panel give the same pixels, on every
 * machine. Throws TemplateError where a value is missing or cannot be shown as the template asks.
 */
export async function renderLabel(
  template: Template,
  values: Readonly<Record<string, string>>,
  panel: Panel,
): Promise<LabelImage> {
  if (template.width !== panel.width || template.height !== panel.height)
    throw new TemplateError(
      `The template is made for ${template.width} × ${template.height} pixels; the label has ${panel.width} × ${panel.height}.`,
    );
  const svg = await filled(template, { values, palette: panel.palette });
  return render(svg, template.hasSvgText, panel);
}

/** The complete SVG. Reads the fonts that turn out to be needed, and fills the template again. */
export async function filled(template: Template, filling: Filling): Promise<string> {
  for (;;) {
    try {
      const svg = fillTemplate(template, filling);
      if (template.hasSvgText) checkSvgText(svg);
      return svg;
    } catch (error) {
      if (!(error instanceof FontNeeded)) throw error;
      await loadFont(error);
    }
  }
}

/** Characters of SVG's own text, with the blanks between elements. */
const mostSvgText = 50_000;

/** The renderer lays out SVG's own text, and has the bundled font alone. */
function checkSvgText(svg: string): void {
  const text = svg
    .replace(/<[^>]*>/g, ' ')
    .replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)));
  if (text.length > mostSvgText)
    throw new TemplateError(
      `The <text> elements have ${text.length} characters; ${mostSvgText} are the most.`,
    );
  const font = bundledFont('regular');
  const missing = [...new Set(drawable(text))].filter(
    (character) => character !== '\u00ad' && !font.has(character.codePointAt(0) ?? 0),
  );
  if (missing.length > 0)
    throw new TemplateError(
      `<text> has no glyph for "${missing[0]}"; <tally-text> knows Arabic, Hebrew, Chinese, Japanese and Korean, too.`,
    );
}

async function render(svg: string, hasSvgText: boolean, panel: Panel): Promise<LabelImage> {
  const rgba = await rgbaOf(svg, hasSvgText);
  if (rgba.length !== panel.width * panel.height * 4)
    throw new TemplateError('The renderer made an image of another size than the template says.');
  const pixels = toPalette(rgba, panel.palette);
  return { png: encodePng(pixels, panel), hash: hashOf(pixels, panel), panel };
}

async function rgbaOf(svg: string, hasSvgText: boolean): Promise<Buffer> {
  const rasterize = await rasterizer();
  try {
    const image = rasterize(svg, {
      background: '#fff',
      font: {
        loadSystemFonts: false,
        fontFiles: hasSvgText ? Object.values(fontFiles) : [],
        // Always use this font: text in a font that is not installed would not be drawn at all.
        defaultFontFamily: fontFamily,
        serifFamily: fontFamily,
        sansSerifFamily: fontFamily,
        cursiveFamily: fontFamily,
        fantasyFamily: fontFamily,
        monospaceFamily: fontFamily,
      },
    });
    return image.pixels;
  } catch (error) {
    throw new TemplateError(`The renderer refused the template: ${messageOf(error)}.`, { cause: error });
  }
}
