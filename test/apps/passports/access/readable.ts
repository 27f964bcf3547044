import { textOfPdf } from '../print/pdf-text.ts';

/** Everything that somebody can read in the bytes of an answer: as they are, in PDFs, in JWTs, and with escapes undone. */
export function readableIn(bytes: Uint8Array): string {
  const raw = Buffer.from(bytes);
  const text = raw.toString('utf8');
  return [text, plain(text), ...pdfsIn(raw).map(textOfPdf), ...jwtsIn(text)].join('\n');
}

/** As a browser or a JSON parser shows it. */
const plain = (text: string): string =>
  text
    .replaceAll('<wbr>', '')
    .replaceAll('&nbsp;', ' ')
    .replaceAll('&amp;', '&')
    .replaceAll('\\"', '"')
    .replaceAll('\\\\', '\\');

/** A bundle has several. */
function pdfsIn(bytes: Buffer): readonly Buffer[] {
  const found: Buffer[] = [];
  for (let at = bytes.indexOf('%PDF-'); at !== -1; ) {
    const end = bytes.indexOf('%%EOF', at);
    found.push(bytes.subarray(at, end === -1 ? bytes.length : end));
    at = end === -1 ? -1 : bytes.indexOf('%PDF-', end);
  }
  return found;
}

const jwtsIn = (text: string): readonly string[] =>
  [...text.matchAll(/eyJ[\w-]+\.(eyJ[\w-]+)\.[\w-]+/g)].map(([, payload = '']) =>
    Buffer.from(payload, 'base64url').toString('utf8'),
  );
