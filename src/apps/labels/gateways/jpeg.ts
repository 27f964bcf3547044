import { encode } from 'jpeg-js';
import { colours, type Panel } from '../render/panel.ts';
import type { Pixels } from '../render/pixels.ts';

/** The finest quantisation. The encoder keeps every pixel's colour at any quality: it does not subsample. */
const quality = 100;

/**
 * A JPEG of a label's pixels, for access points that accept only JPEG. Every pixel decodes to within a few steps of its
 * colour, so the access point finds the right one without dithering.
 */
export function encodeJpeg(pixels: Pixels, { width, height, palette }: Panel): Buffer {
  const data = Buffer.alloc(width * height * 4, 255);
  pixels.forEach((index, at) => {
    data.set(colours[palette][index] ?? [], at * 4);
  });
  return encode({ data, width, height }, quality).data;
}
