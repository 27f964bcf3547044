import type { ResvgRenderOptions } from '@resvg/resvg-js';
import { messageOf, TallymanError } from '../../../engine/errors.ts';

/** Draws an SVG as pixels, in this thread. Throws if resvg rejects the SVG. */
export type Rasterize = (
  svg: string,
  options: Pick<ResvgRenderOptions, 'background' | 'font'>,
) => { readonly pixels: Buffer; asPng(): Buffer };

let loading: Promise<Rasterize> | undefined;

/** Loaded for the first image: a process that draws none needs no native binary. */
export function rasterizer(): Promise<Rasterize> {
  loading ??= load().catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

async function load(): Promise<Rasterize> {
  const { Resvg } = await import('@resvg/resvg-js').catch((error: unknown) => {
    throw new TallymanError(
      'MISSING_PACKAGE',
      'Label images are drawn by resvg, whose program for this machine is not installed: dependencies were installed ' +
        `with --omit=optional, or for another machine. Install them (npm install --include=optional). It said: ${messageOf(error)}`,
      { cause: error, details: { package: '@resvg/resvg-js' } },
    );
  });
  return (svg, options) => new Resvg(svg, { ...options, logLevel: 'off' }).render();
}
