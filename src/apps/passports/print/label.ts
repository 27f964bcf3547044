import PDFDocument from 'pdfkit';
import { passportError } from '../errors.ts';
import { type Language, texts } from '../page/texts.ts';
import type { PassportView } from '../page/view.ts';
import { qrModules, quietZone } from '../qr/modules.ts';
import { collect, drawCode, millimetre, winAnsi } from './draw.ts';
import { type LabelSize, labelSizes } from './sizes.ts';

/*
 * One label for a label printer: both codes with their quiet zones, and what a person needs to tell the battery. Codes stand
 * side by side, and below each other on a label that is higher than wide. The same passport gives the same bytes.
 */

export async function renderLabel(
  view: PassportView,
  language: Language,
  size: LabelSize,
): Promise<Uint8Array> {
  // A label outlives the day on which it is printed: none is made for a version that has ended.
  if (view.state !== 'ACTIVE')
    throw passportError(
      'PASSPORT_NOT_ACTIVE',
      `version ${view.versionId} is ${view.state}: print the label of the version that counts`,
    );
  const { width, height, labelCode, documentCode } = labelSizes[size];
  const issued = new Date(view.issuedAt);
  const document = new PDFDocument({
    size: [width * millimetre, height * millimetre],
    margin: 0,
    lang: language,
    info: {
      Title: `${view.product.name} ${view.serial ?? ''}`.trim(),
      Subject: view.versionId,
      Creator: 'Tallyman',
      Producer: 'Tallyman',
      CreationDate: issued,
      ModDate: issued,
    },
  });
  const bytes = collect(document);
  const codes = [
    { modules: qrModules(view.labelLink), width: labelCode * millimetre },
    { modules: qrModules(view.documentCode), width: documentCode * millimetre },
  ].map((code) => ({ ...code, outer: code.width * (1 + (2 * quietZone) / code.modules.size) }));
  const isHigh = height > width;
  const [across, down] = [width * millimetre, height * millimetre];
  const sum = codes.reduce((all, { outer }) => all + outer, 0);
  const textHeight = isHigh ? 16 * millimetre : down - Math.max(...codes.map(({ outer }) => outer));
  const gap = ((isHigh ? down - textHeight : across) - sum) / (codes.length + 1);
  let at = gap;
  for (const { modules, width: inner, outer } of codes) {
    if (isHigh) drawCode(document, modules, (across - outer) / 2, at, inner);
    else drawCode(document, modules, at, 0, inner);
    at += outer + gap;
  }
  writeText(document, view, language, { top: down - textHeight, across, height: textHeight });
  document.end();
  return bytes;
}

/** As large as the space below the codes and the width allow. */
function writeText(
  document: PDFKit.PDFDocument,
  { product, serial }: PassportView,
  language: Language,
  { top, across, height }: { readonly top: number; readonly across: number; readonly height: number },
): void {
  const margin = 1.5 * millimetre;
  const width = across - 2 * margin;
  const about = [serial === null ? '' : `${texts[language].serial} ${serial}`, `GTIN ${product.gtin}`];
  const lines = [
    { font: 'Helvetica-Bold', text: winAnsi(product.name) },
    { font: 'Helvetica', text: winAnsi(about.filter(Boolean).join('   ')) },
  ];
  const widest = Math.max(
    ...lines.map(({ font, text }) => document.font(font).fontSize(10).widthOfString(text)),
  );
  const size = Math.max(4, Math.min(12, (height - margin) / 2.6, (10 * width) / widest));
  for (const [at, { font, text }] of lines.entries())
    document
      .fill('#000')
      .font(font)
      .fontSize(size)
      .text(text, margin, top + at * size * 1.25, {
        width,
        height: size * 1.2,
        lineBreak: false,
        ellipsis: true,
      });
}
