import { crc32, deflateSync, inflateSync } from 'node:zlib';
import { colours, type Palette, type Panel, palettes } from './panel.ts';
import type { Pixels } from './pixels.ts';

const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const indexed = 3;
/** Larger images are not decoded. */
const mostPixels = 4_000_000;

/** Bits a pixel: one for two colours, two for three. */
const depthOf = (palette: Palette): 1 | 2 => (colours[palette].length <= 2 ? 1 : 2);

/** An indexed PNG, of as few bits as the palette allows. Level 3 packs a label in a third of the time of level 6. */
export function encodePng(pixels: Pixels, panel: Panel): Buffer {
  const depth = depthOf(panel.palette);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(panel.width, 0);
  header.writeUInt32BE(panel.height, 4);
  header.set([depth, indexed, 0, 0, 0], 8);
  return Buffer.concat([
    signature,
    chunk('IHDR', header),
    chunk('PLTE', Buffer.from(colours[panel.palette].flat())),
    chunk('IDAT', deflateSync(packed(pixels, panel, depth), { level: 3 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

/** The same PNG with its print size. */
export function withResolution(png: Buffer, dpi: number): Buffer {
  const perMetre = Math.round(dpi / 0.0254);
  const content = Buffer.alloc(9);
  content.writeUInt32BE(perMetre, 0);
  content.writeUInt32BE(perMetre, 4);
  content[8] = 1;
  const afterHeader = signature.length + 25;
  return Buffer.concat([png.subarray(0, afterHeader), chunk('pHYs', content), png.subarray(afterHeader)]);
}

/** Rows of packed indexes, each after a byte that says: not filtered. */
function packed(pixels: Pixels, { width, height }: Panel, depth: 1 | 2): Buffer {
  const perByte = 8 / depth;
  const rows = Buffer.alloc((Math.ceil(width / perByte) + 1) * height);
  let to = 0;
  for (let y = 0; y < height; y += 1) {
    const end = (y + 1) * width;
    to += 1;
    for (let from = y * width; from < end; from += perByte) {
      let byte = 0;
      for (let nth = 0; nth < perByte; nth += 1)
        byte = (byte << depth) | (from + nth < end ? (pixels[from + nth] as number) : 0);
      rows[to] = byte;
      to += 1;
    }
  }
  return rows;
}

function chunk(type: string, content: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), content]);
  const framed = Buffer.alloc(named.length + 8);
  framed.writeUInt32BE(content.length, 0);
  named.copy(framed, 4);
  framed.writeUInt32BE(crc32(named), named.length + 4);
  return framed;
}

/** Reads a PNG that `encodePng` wrote. Throws for any other, and for a damaged one. */
export function decodePng(png: Buffer): { readonly panel: Panel; readonly pixels: Pixels } {
  const chunks = readChunks(png);
  const header = chunks.get('IHDR');
  const palette = palettes.find((name) => chunks.get('PLTE')?.equals(Buffer.from(colours[name].flat())));
  const content = chunks.get('IDAT');
  if (header?.length !== 13 || !palette || !content) throw new Error('not a PNG in the palette of a label');
  const panel = { width: header.readUInt32BE(0), height: header.readUInt32BE(4), palette };
  const depth = depthOf(palette);
  if (header[8] !== depth || header[9] !== indexed || panel.width * panel.height > mostPixels)
    throw new Error('not a PNG in the palette of a label');
  const rowBytes = Math.ceil((panel.width * depth) / 8) + 1;
  const rows = inflateSync(content, { maxOutputLength: rowBytes * panel.height });
  if (rows.length !== rowBytes * panel.height) throw new Error('a PNG with rows missing');
  return { panel, pixels: unpacked(rows, panel, depth) };
}

function unpacked(rows: Buffer, { width, height }: Panel, depth: 1 | 2): Pixels {
  const perByte = 8 / depth;
  const mask = (1 << depth) - 1;
  const pixels = new Uint8Array(width * height);
  let from = 0;
  for (let y = 0; y < height; y += 1) {
    if (rows[from] !== 0) throw new Error('a PNG with filtered rows');
    from += 1;
    const end = (y + 1) * width;
    for (let to = y * width; to < end; to += perByte) {
      const byte = rows[from] ?? 0;
      from += 1;
      for (let nth = 0; nth < perByte && to + nth < end; nth += 1)
        pixels[to + nth] = (byte >> (8 - depth * (nth + 1))) & mask;
    }
  }
  return pixels;
}

function readChunks(png: Buffer): Map<string, Buffer> {
  if (!png.subarray(0, 8).equals(signature)) throw new Error('not a PNG');
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at + 12 <= png.length; ) {
    const length = png.readUInt32BE(at);
    const end = at + 8 + length;
    if (end + 4 > png.length || crc32(png.subarray(at + 4, end)) !== png.readUInt32BE(end))
      throw new Error('a damaged PNG');
    const type = png.toString('latin1', at + 4, at + 8);
    chunks.set(type, Buffer.concat([chunks.get(type) ?? Buffer.alloc(0), png.subarray(at + 8, end)]));
    at = end + 4;
  }
  return chunks;
}
