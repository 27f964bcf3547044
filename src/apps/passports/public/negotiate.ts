/** The forms of a passport, by the name that `?format=` takes. */
export const formats = {
  html: ['text/html', 'application/xhtml+xml'],
  json: ['application/json'],
  jsonld: ['application/ld+json', 'application/vc'],
  'vc+jwt': ['application/vc+jwt', 'application/jwt'],
  pdf: ['application/pdf'],
  bundle: ['application/x-tar'],
} as const;
export type Format = keyof typeof formats;
export const formatNames = Object.keys(formats) as readonly Format[];

/** What a browser, a phone or a program asks for (RFC 9110, 12.5.1). Undefined: nothing that there is. */
export function formatFor(accept: string | undefined): Format | undefined {
  if (accept === undefined || accept.trim() === '') return 'html';
  const wanted = accept
    .split(',')
    .slice(0, 50)
    .map((part) => {
      const [range = '', ...parameters] = part.trim().toLowerCase().split(';');
      const quality = parameters
        .map((each) => /^\s*q=([01](?:\.\d{0,3})?)\s*$/.exec(each)?.[1])
        .find(Boolean);
      return { range: range.trim(), quality: quality === undefined ? 1 : Number(quality) };
    });
  // The most specific range that fits a type decides about it.
  const qualityOf = (type: string): number =>
    [type, `${type.split('/')[0]}/*`, '*/*']
      .map((range) => wanted.find((each) => each.range === range)?.quality)
      .find((quality) => quality !== undefined) ?? 0;
  const rated = formatNames.map((format) => ({
    format,
    quality: Math.max(...formats[format].map(qualityOf)),
  }));
  const best = Math.max(...rated.map(({ quality }) => quality));
  return best === 0 ? undefined : rated.find(({ quality }) => quality === best)?.format;
}
