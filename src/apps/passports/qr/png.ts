import { crc32, deflateSync } from 'node:zlib';
import { qrModules, quietZone } from './modules.ts';

/*
 * The document code as PNG (BPC-10): error correction M, 10 pixels a module. The image has one bit a pixel: that takes a
 * tenth of the time and the space of colours, and the same text gives the same bytes.
 */

const modulePixels = 10;

/** PNG's filter "Up". */
const asAbove = 2;

export function qrPng(text: string, border = 0): Uint8Array {
  const { size: modules, isDark } = qrModules(text);
  const size = (modules + 2 * border) * modulePixels;
  const stride = Math.ceil(size / 8);
  // Each row of modules is drawn once, in its first line; the lines below say "as above" (filter 2, all zero).
  const raw = Buffer.alloc((stride + 1) * size);
  for (let row = -border; row < modules + border; row += 1) {
    const start = (row + border) * modulePixels * (stride + 1);
    for (let line = 1; line < modulePixels; line += 1) raw[start + line * (stride + 1)] = asAbove;
    raw.fill(0xff, start + 1, start + 1 + stride);
    if (row < 0 || row >= modules) continue;
    for (let x = border * modulePixels; x < (border + modules) * modulePixels; x += 1) {
      if (!isDark(Math.floor(x / modulePixels) - border, row)) continue;
      const at = start + 1 + (x >> 3);
      raw[at] = (raw[at] as number) & ~(0x80 >> (x & 7));
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(size, 0);
  header.writeUInt32BE(size, 4);
  // One bit a pixel, greyscale.
  header[8] = 1;
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(raw)),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** With the quiet zone that a reader needs, for print. */
export const printableQrPng = (text: string): Uint8Array => qrPng(text, quietZone);

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}
