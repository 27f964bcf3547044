import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import jsqr from 'jsqr';

/** Two decoders that know nothing of each other, for images on disk. */

const run = promisify(execFile);

/** Everything that zbar reads in an image. */
export async function zbar(file: string): Promise<readonly string[]> {
  const { stdout } = await run('zbarimg', ['--raw', '-q', '-S*.enable=0', '-Sqrcode.enable=1', file]).catch(
    (error: { readonly code?: number; readonly stdout: string }) => {
      // 4: there is none in it.
      if (error.code === 4) return error;
      throw error;
    },
  );
  return stdout.split('\n').filter(Boolean).sort();
}

/** jsQR finds one code in an image: what is asked for is cut out first, in shares of width and height. */
export async function jsQr(
  file: string,
  {
    from = 0,
    to = 1,
    top = 0,
    bottom = 1,
  }: { from?: number; to?: number; top?: number; bottom?: number } = {},
): Promise<string | undefined> {
  const bytes = await readFile(file);
  const head = /^P6\s+(\d+)\s+(\d+)\s+255\s/.exec(bytes.subarray(0, 40).toString('latin1'));
  if (!head) throw new Error(`${file} is no PPM`);
  const [width, height, start] = [Number(head[1]), Number(head[2]), head[0].length];
  const [left, right] = [Math.floor(from * width), Math.floor(to * width)];
  const [first, last] = [Math.floor(top * height), Math.floor(bottom * height)];
  const pixels = new Uint8ClampedArray((right - left) * (last - first) * 4).fill(255);
  for (let y = first; y < last; y += 1)
    for (let x = left; x < right; x += 1)
      for (let channel = 0; channel < 3; channel += 1)
        pixels[((y - first) * (right - left) + x - left) * 4 + channel] =
          bytes[start + (y * width + x) * 3 + channel] ?? 255;
  return jsqr.default(pixels, right - left, last - first)?.data;
}

/** The first page as a PPM. */
export async function pageImage(pdf: string, dpi: number): Promise<string> {
  const name = pdf.replace(/\.pdf$/, '');
  await run('pdftoppm', ['-r', String(dpi), '-f', '1', '-l', '1', '-singlefile', pdf, name]);
  return `${name}.ppm`;
}
