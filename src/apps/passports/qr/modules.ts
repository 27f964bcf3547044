import bwipjs from 'bwip-js/node';

/** The dark modules of a QR code, row by row, without quiet zone. */
export interface QrModules {
  readonly size: number;
  readonly isDark: (x: number, y: number) => boolean;
}

/** ISO/IEC 18004 asks for this much blank around a code. */
export const quietZone = 4;

/**
 * One mask for all codes. The text of a document code is mostly hashes, whose bits look random: no mask suits it better than
 * another, and to try all eight takes three times as long.
 */
const mask = 1;

/** Error correction M (BPC-10). */
export function qrModules(text: string): QrModules {
  // The types of bwip-js leave out options of single symbologies.
  const [symbol] = bwipjs.raw({ bcid: 'qrcode', text, eclevel: 'M', mask } as Parameters<
    typeof bwipjs.raw
  >[0]);
  if (!symbol || !('pixs' in symbol)) throw new Error('bwip-js gave no modules for a QR code');
  const { pixs, pixx: size } = symbol;
  return { size, isDark: (x, y) => pixs[y * size + x] === 1 };
}

/** Path data with one rectangle for each run of dark modules, in modules, quiet zone included. */
export function qrPath({ size, isDark }: QrModules): string {
  const runs: string[] = [];
  for (let y = 0; y < size; y += 1)
    for (let x = 0; x < size; x += 1) {
      if (!isDark(x, y) || (x > 0 && isDark(x - 1, y))) continue;
      let end = x;
      while (end < size && isDark(end, y)) end += 1;
      runs.push(`M${x + quietZone} ${y + quietZone}h${end - x}v1h${x - end}z`);
    }
  return runs.join('');
}
