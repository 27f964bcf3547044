import { createHash } from 'node:crypto';
import { colours, type Palette, type Panel, type Rgb } from './panel.ts';

/** One byte a pixel, an index into the palette's colours. */
export type Pixels = Uint8Array;

/**
 * To the nearest colour of the palette, pixel by pixel: no dithering, which would fray letters and bars. Of two that are
 * equally near the first is taken, so red where there is none becomes black, yellow white.
 */
export function toPalette(rgba: Uint8Array, palette: Palette): Pixels {
  // Four bytes at once, signed: white is -1, and the engine keeps such numbers without a box around each.
  const words = new Int32Array(rgba.buffer, rgba.byteOffset, rgba.byteLength / 4);
  const pixels = new Uint8Array(words.length);
  const third = colours[palette][2];
  let last = white;
  let index = whiteIndex;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] as number;
    if (word !== last) {
      last = word;
      index = word === white ? whiteIndex : word === black ? blackIndex : nearest(rgba, at * 4, third);
    }
    pixels[at] = index;
  }
  return pixels;
}

const white = -1;
/** Opaque, least byte first. */
const black = -0x1000000;
const blackIndex = 0;
const whiteIndex = 1;
const thirdIndex = 2;

function nearest(rgba: Uint8Array, at: number, third: Rgb | undefined): number {
  const red = rgba[at] as number;
  const green = rgba[at + 1] as number;
  const blue = rgba[at + 2] as number;
  const toBlack = red ** 2 + green ** 2 + blue ** 2;
  const toWhite = (255 - red) ** 2 + (255 - green) ** 2 + (255 - blue) ** 2;
  const best = toBlack <= toWhite ? blackIndex : whiteIndex;
  if (!third) return best;
  const toThird = (third[0] - red) ** 2 + (third[1] - green) ** 2 + (third[2] - blue) ** 2;
  return toThird < Math.min(toBlack, toWhite) ? thirdIndex : best;
}

/** Size, palette and pixels: nothing that an encoder decides. */
export function hashOf(pixels: Pixels, { width, height, palette }: Panel): string {
  return createHash('sha256').update(`${width}x${height} ${palette}\n`).update(pixels).digest('hex');
}
