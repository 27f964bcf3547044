import { messageOf } from '../../../engine/errors.ts';
import { TemplateError } from './errors.ts';
import { fontFamily, fontFiles } from './font.ts';
import type { LabelImage } from './image.ts';
import type { Panel } from './panel.ts';
import { hashOf, toPalette } from './pixels.ts';
import { encodePng } from './png.ts';
import { rasterizer } from './rasterizer.ts';
import { fillTemplate, type Template } from './template.ts';

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
  const svg = fillTemplate(template, { values, palette: panel.palette });
  return render(svg, template.hasSvgText, panel);
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
    const image = await rasterize(svg, {
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
