/** What a label's screen can show: black and white, and where it has one, a third pigment. */
export type Palette = 'bw' | 'bwr' | 'bwy';

/** A label's screen. */
export interface Panel {
  readonly width: number;
  readonly height: number;
  readonly palette: Palette;
}

export type Rgb = readonly [red: number, green: number, blue: number];

/** A pixel is an index into these; the order is part of an image's hash. */
export const colours: Readonly<Record<Palette, readonly Rgb[]>> = {
  bw: [
    [0, 0, 0],
    [255, 255, 255],
  ],
  bwr: [
    [0, 0, 0],
    [255, 255, 255],
    [255, 0, 0],
  ],
  bwy: [
    [0, 0, 0],
    [255, 255, 255],
    [255, 255, 0],
  ],
};

export const palettes = Object.keys(colours) as readonly Palette[];

/** Sizes that there is a built-in template for, with the pixels an inch that such panels have. */
export const standardSizes = [
  { width: 200, height: 200, dpi: 183 },
  { width: 296, height: 160, dpi: 152 },
  { width: 384, height: 168, dpi: 145 },
  { width: 400, height: 300, dpi: 119 },
  { width: 800, height: 480, dpi: 125 },
] as const;
