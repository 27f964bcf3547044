import PDFDocument from 'pdfkit';
import { type Language, texts } from '../page/texts.ts';
import { formatDate, formatField, formatMissing, titleOf } from '../page/values.ts';
import type { PassportView } from '../page/view.ts';
import { qrModules } from '../qr/modules.ts';
import { collect, drawCode, millimetre, winAnsi } from './draw.ts';

/*
 * The passport on paper, with both codes. The same passport gives the same bytes: dates and ids are the passport's, and
 * nothing is taken from the clock. Fonts are the standard ones of PDF, which know Western European letters only; others
 * are shown as "?", and the page has them right.
 */

/** Widths of the codes in mm, without quiet zone: what label printers make. */
export const codeWidths = { label: 15, document: 25 } as const;

export interface PrintOptions {
  /** In mm, without quiet zone. */
  readonly documentCodeWidth?: number;
}

export async function renderPdf(
  view: PassportView,
  language: Language,
  { documentCodeWidth = codeWidths.document }: PrintOptions = {},
): Promise<Uint8Array> {
  const say = texts[language];
  const issued = new Date(view.issuedAt);
  const document = new PDFDocument({
    size: 'A4',
    margin: 15 * millimetre,
    bufferPages: true,
    lang: language,
    info: {
      Title: `${say.title}: ${view.product.name} ${view.serial ?? ''}`.trim(),
      Author: view.product.manufacturer,
      Subject: view.versionId,
      Creator: 'Tallyman',
      Producer: 'Tallyman',
      CreationDate: issued,
      ModDate: issued,
    },
  });
  const bytes = collect(document);
  const put = (text: string, size: number, font: 'Helvetica' | 'Helvetica-Bold' = 'Helvetica'): void => {
    document.font(font).fontSize(size).fillColor('#000').text(winAnsi(text));
  };
  const heading = (text: string): void => {
    document.moveDown(0.7);
    // A heading at the foot of a page would stand alone.
    if (document.y + 20 * millimetre > document.page.height - document.page.margins.bottom)
      document.addPage();
    const [left, right] = [document.page.margins.left, document.page.width - document.page.margins.right];
    document.moveTo(left, document.y).lineTo(right, document.y).lineWidth(0.75).stroke('#0b5d4f');
    document.y += 4;
    put(text, 12, 'Helvetica-Bold');
    document.moveDown(0.15);
  };

  put(say.title, 9);
  put(view.product.name, 18, 'Helvetica-Bold');
  put(`${say.categories[view.product.category]} · ${view.product.manufacturer}`, 10);
  put(
    [
      view.serial === null ? '' : `${say.serial} ${view.serial}`,
      `GTIN ${view.product.gtin}`,
      `${say.issued} ${formatDate(view.issuedAt, language)}`,
      say.states[view.state].name,
    ]
      .filter(Boolean)
      .join('   '),
    10,
  );
  if (view.state !== 'ACTIVE') put(say.states[view.state].sentence, 10, 'Helvetica-Bold');
  document.moveDown(0.5);

  const top = document.y;
  const left = document.page.margins.left;
  const label = drawCode(document, qrModules(view.labelLink), left, top, codeWidths.label * millimetre);
  const second = left + 60 * millimetre;
  const code = drawCode(document, qrModules(view.documentCode), second, top, documentCodeWidth * millimetre);
  const below = top + Math.max(label, code);
  const caption = { width: 55 * millimetre };
  document.font('Helvetica').fontSize(8).fillColor('#444');
  document.text(winAnsi(`${say.labelCode}: ${view.labelLink}`), left, below, caption);
  const end = document.y;
  document.text(winAnsi(`${say.documentCode}: ${view.versionId}`), second, below, {
    width: 100 * millimetre,
  });
  document.x = left;
  document.y = Math.max(end, document.y);

  for (const { group, fields } of view.groups) {
    heading(say.groups[group]);
    for (const { name, result } of fields) {
      const shown =
        result.status === 'value'
          ? formatField(name, result.value, language)
          : formatMissing(result, language);
      row(document, titleOf(name, language), shown);
    }
  }
  if (view.withheld.length > 0) {
    heading(say.withheld);
    for (const { point, fields } of view.withheld)
      row(
        document,
        `${say.points[point].name} (${say.annex} ${point})`,
        `${say.whoMay}: ${say.points[point].who}. ${fields.map((name) => titleOf(name, language)).join(' · ')}`,
      );
  }
  heading(say.verification);
  put(`${say.signature[view.signature]} ${say.notQualified}`, 9);
  row(document, say.hashes.receipt, view.hashes.receipt);
  row(document, say.hashes.payload, view.hashes.payload);
  row(document, say.hashes.proof, view.hashes.proof);
  row(document, say.hashes.key, view.key);
  footers(document, `${say.title} · ${view.product.name}${view.serial === null ? '' : ` · ${view.serial}`}`);
  document.end();
  return bytes;
}

/** What it is, and which page of how many. */
function footers(document: PDFKit.PDFDocument, text: string): void {
  const { count } = document.bufferedPageRange();
  for (let page = 0; page < count; page += 1) {
    document.switchToPage(page);
    const { margins, width, height } = document.page;
    // Text below the margin would start a new page.
    margins.bottom = 0;
    document.font('Helvetica').fontSize(7.5).fillColor('#666');
    const options = { width: width - margins.left - margins.right, lineBreak: false } as const;
    document.text(winAnsi(text), margins.left, height - 10 * millimetre, options);
    document.text(`${page + 1} / ${count}`, margins.left, height - 10 * millimetre, {
      ...options,
      align: 'right',
    });
  }
}

function row(document: PDFKit.PDFDocument, title: string, text: string): void {
  const left = document.page.margins.left;
  const column = 65 * millimetre;
  const rest = document.page.width - 2 * left - column;
  document.font('Helvetica').fontSize(9);
  const [name, shown] = [winAnsi(title), winAnsi(text)];
  const height = Math.max(
    document.heightOfString(name, { width: column - 10 }),
    document.heightOfString(shown, { width: rest }),
  );
  if (document.y + height > document.page.height - document.page.margins.bottom) document.addPage();
  const top = document.y;
  document.fillColor('#555').text(name, left, top, { width: column - 10 });
  document.fillColor('#000').text(shown, left + column, top, { width: rest });
  document.x = left;
  document.y = top + height + 2;
}
