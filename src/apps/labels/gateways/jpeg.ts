import { colours, type Panel, type Rgb } from '../render/panel.ts';
import type { Pixels } from '../render/pixels.ts';

/**
 * A JPEG of a label's pixels, for access points that take nothing else: baseline, the finest quantisation and no colour
 * left out, so that every pixel decodes to within a few steps of its colour and is told apart without dithering.
 */
export function encodeJpeg(pixels: Pixels, panel: Panel): Buffer {
  const bits = new BitWriter();
  const planes = planesOf(pixels, panel);
  const previous = [0, 0, 0];
  const block = new Float64Array(64);
  for (let top = 0; top < panel.height; top += 8)
    for (let left = 0; left < panel.width; left += 8)
      for (let component = 0; component < 3; component += 1) {
        fillBlock(block, planes[component] as Float64Array, panel, left, top);
        previous[component] = writeBlock(bits, block, previous[component] ?? 0);
      }
  return Buffer.concat([headers(panel), bits.finished(), Buffer.from([0xff, 0xd9])]);
}

/** JFIF's YCbCr, moved around zero. */
const yCbCr = ([r, g, b]: Rgb): readonly number[] => [
  0.299 * r + 0.587 * g + 0.114 * b - 128,
  -0.168736 * r - 0.331264 * g + 0.5 * b,
  0.5 * r - 0.418688 * g - 0.081312 * b,
];

function planesOf(pixels: Pixels, { palette }: Panel): readonly Float64Array[] {
  const values = colours[palette].map(yCbCr);
  return [0, 1, 2].map((component) => Float64Array.from(pixels, (index) => values[index]?.[component] ?? 0));
}

/** Beyond the edge the last row and column go on. */
function fillBlock(
  block: Float64Array,
  plane: Float64Array,
  { width, height }: Panel,
  left: number,
  top: number,
): void {
  for (let y = 0; y < 8; y += 1)
    for (let x = 0; x < 8; x += 1)
      block[y * 8 + x] = plane[Math.min(top + y, height - 1) * width + Math.min(left + x, width - 1)] ?? 0;
}

const zigzag = [
  0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46,
  53, 60, 61, 54, 47, 55, 62, 63,
];

const cosines = Array.from({ length: 64 }, (_, at) => {
  const [u, x] = [Math.floor(at / 8), at % 8];
  return Math.cos(((2 * x + 1) * u * Math.PI) / 16) * (u === 0 ? Math.SQRT1_2 : 1) * 0.5;
});

/** Returns the block's DC value, which the next one is told against. */
function writeBlock(bits: BitWriter, block: Float64Array, previous: number): number {
  const coefficients = transformed(block);
  const dc = coefficients[0] ?? 0;
  const difference = sized(dc - previous);
  bits.code(dcCodes, difference.size);
  bits.write(difference.bits, difference.size);
  let zeros = 0;
  for (let at = 1; at < 64; at += 1) {
    const value = coefficients[zigzag[at] ?? 0] ?? 0;
    if (value === 0) {
      zeros += 1;
      continue;
    }
    for (; zeros > 15; zeros -= 16) bits.code(acCodes, 0xf0);
    const { size, bits: coded } = sized(value);
    bits.code(acCodes, (zeros << 4) | size);
    bits.write(coded, size);
    zeros = 0;
  }
  if (zeros > 0) bits.code(acCodes, 0);
  return dc;
}

/** Rows, then columns. A block of one colour, as most are, has a DC value and nothing else. */
function transformed(block: Float64Array): Int32Array {
  const out = new Int32Array(64);
  const [first] = block;
  if (block.every((value) => value === first)) {
    out[0] = Math.round((first ?? 0) * 8);
    return out;
  }
  const rows = new Float64Array(64);
  for (let y = 0; y < 8; y += 1)
    for (let u = 0; u < 8; u += 1) {
      let sum = 0;
      for (let x = 0; x < 8; x += 1) sum += (block[y * 8 + x] ?? 0) * (cosines[u * 8 + x] ?? 0);
      rows[y * 8 + u] = sum;
    }
  for (let v = 0; v < 8; v += 1)
    for (let u = 0; u < 8; u += 1) {
      let sum = 0;
      for (let y = 0; y < 8; y += 1) sum += (rows[y * 8 + u] ?? 0) * (cosines[v * 8 + y] ?? 0);
      out[v * 8 + u] = Math.round(sum);
    }
  return out;
}

/** A number as JPEG writes it: how many bits, and the bits, negatives as ones' complement. */
function sized(value: number): { readonly size: number; readonly bits: number } {
  const size = value === 0 ? 0 : 32 - Math.clz32(Math.abs(value));
  return { size, bits: value < 0 ? value + (1 << size) - 1 : value };
}

/** Codes by their lengths, as in ITU-T T.81, annex K; the values of every length in order. */
interface HuffmanTable {
  readonly counts: readonly number[];
  readonly values: readonly number[];
}
const dcTable: HuffmanTable = {
  counts: [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
  values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
};
/** Every run and size in eight or nine bits: a little longer than the standard's, and no table of 162 numbers. */
const acTable: HuffmanTable = (() => {
  const values = [0x00, 0xf0];
  for (let size = 1; size <= 10; size += 1)
    for (let run = 0; run < 16; run += 1) values.push((run << 4) | size);
  const counts = new Array<number>(16).fill(0);
  // 254 codes of eight bits would leave none over; all ones is forbidden, and 162 fit.
  counts[7] = values.length;
  return { counts, values };
})();

type Codes = ReadonlyMap<number, { readonly bits: number; readonly size: number }>;
function codesOf({ counts, values }: HuffmanTable): Codes {
  const codes = new Map<number, { bits: number; size: number }>();
  let code = 0;
  let at = 0;
  counts.forEach((count, index) => {
    for (let nth = 0; nth < count; nth += 1) codes.set(values[at++] ?? 0, { bits: code++, size: index + 1 });
    code <<= 1;
  });
  return codes;
}
const dcCodes = codesOf(dcTable);
const acCodes = codesOf(acTable);

class BitWriter {
  readonly #bytes: number[] = [];
  #pending = 0;
  #count = 0;

  code(codes: Codes, value: number): void {
    const code = codes.get(value);
    if (!code) throw new RangeError(`no code for ${value}`);
    this.write(code.bits, code.size);
  }

  write(bits: number, size: number): void {
    for (let bit = size - 1; bit >= 0; bit -= 1) {
      this.#pending = (this.#pending << 1) | ((bits >> bit) & 1);
      this.#count += 1;
      if (this.#count === 8) this.#flush();
    }
  }

  /** The last byte is filled with ones. */
  finished(): Buffer {
    while (this.#count > 0) this.write(1, 1);
    return Buffer.from(this.#bytes);
  }

  #flush(): void {
    this.#bytes.push(this.#pending);
    // 0xff begins a marker; in the data a zero follows it.
    if (this.#pending === 0xff) this.#bytes.push(0);
    this.#pending = 0;
    this.#count = 0;
  }
}

function headers({ width, height }: Panel): Buffer {
  const segment = (marker: number, content: readonly number[]): readonly number[] => [
    0xff,
    marker,
    (content.length + 2) >> 8,
    (content.length + 2) & 0xff,
    ...content,
  ];
  const table = (id: number, { counts, values }: HuffmanTable) => segment(0xc4, [id, ...counts, ...values]);
  const components = [1, 2, 3];
  return Buffer.from([
    0xff,
    0xd8,
    ...segment(0xe0, [0x4a, 0x46, 0x49, 0x46, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0]),
    ...segment(0xdb, [0, ...new Array<number>(64).fill(1)]),
    ...segment(0xc0, [
      8,
      height >> 8,
      height & 0xff,
      width >> 8,
      width & 0xff,
      3,
      ...components.flatMap((id) => [id, 0x11, 0]),
    ]),
    ...table(0x00, dcTable),
    ...table(0x10, acTable),
    ...segment(0xda, [3, ...components.flatMap((id) => [id, 0x00]), 0, 63, 0]),
  ]);
}
