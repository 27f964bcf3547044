import { inflateSync } from 'node:zlib';

/** What pdfkit has drawn, page by page. */
export const streamsOf = (bytes: Uint8Array): readonly string[] =>
  [
    ...Buffer.from(bytes)
      .toString('latin1')
      .matchAll(/stream\n([\s\S]*?)\nendstream/g),
  ].map(([, stream = '']) => inflateSync(Buffer.from(stream, 'latin1')).toString('latin1'));

/** The text that is drawn: pdfkit writes it as hex in compressed streams. */
export const textOfPdf = (bytes: Uint8Array): string =>
  streamsOf(bytes)
    .map((content) =>
      content.replace(/\[([^\]]*)\] TJ/g, (_, parts: string) =>
        [...parts.matchAll(/<([0-9a-f]*)>/g)]
          .map(([, hex = '']) => Buffer.from(hex, 'hex').toString('latin1'))
          .join(''),
      ),
    )
    .join('\n');
