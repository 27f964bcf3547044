import { type QrModules, quietZone } from '../qr/modules.ts';

/** What pages and labels are drawn with. */

export const millimetre = 72 / 25.4;

export function collect(document: PDFKit.PDFDocument): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    document.on('data', (chunk: Buffer) => chunks.push(chunk));
    document.on('end', () => resolve(Buffer.concat(chunks)));
    document.on('error', reject);
  });
}

/** Draws the modules as rectangles: sharp at every resolution. Returns the height with its quiet zone. */
export function drawCode(
  document: PDFKit.PDFDocument,
  code: QrModules,
  x: number,
  y: number,
  width: number,
): number {
  const module = width / code.size;
  const at = quietZone * module;
  for (let line = 0; line < code.size; line += 1)
    for (let column = 0; column < code.size; column += 1) {
      if (!code.isDark(column, line) || (column > 0 && code.isDark(column - 1, line))) continue;
      let end = column;
      while (end < code.size && code.isDark(end, line)) end += 1;
      document.rect(x + at + column * module, y + at + line * module, (end - column) * module, module);
    }
  document.fill('#000');
  return width + 2 * at;
}

const spelled: Readonly<Record<string, string>> = { '₂': '2', Ω: 'Ohm', '−': '-' };

/** The letters of the standard fonts: Latin-1, and a few signs. */
export const winAnsi = (text: string): string =>
  text
    .replace(/[₂Ω−]/g, (each) => spelled[each] ?? each)
    .replace(/[^\n\u0020-\u007e\u00a0-\u00ff€‚„…‘’“”•–—™]/gu, '?');
