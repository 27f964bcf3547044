export { builtInTemplate } from './built-in.ts';
export { TemplateError } from './errors.ts';
export type { LabelImage } from './image.ts';
export { renderLabel } from './label.ts';
export { type Palette, type Panel, palettes, standardSizes } from './panel.ts';
export { samplePromotion, sampleValues } from './sample.ts';
export { previewSheets, type SheetOptions } from './sheet.ts';
export { readTemplate, type Template } from './template.ts';
