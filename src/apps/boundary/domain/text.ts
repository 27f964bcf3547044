import { invalid } from './errors.ts';

const control = /\p{Cc}/u;
/** Nearly all texts look like this, and a byte is a character. */
const ordinary = /^[\x20-\x7e]+$/;

/** A text that is not empty, has no control characters and at most so many bytes. */
export function requireToken(text: string, field: string, maxBytes: number): void {
  if (text.length <= maxBytes && ordinary.test(text)) return;
  if (text === '') throw invalid(field, 'is missing');
  const bytes = Buffer.byteLength(text);
  if (bytes > maxBytes) throw invalid(field, `must be at most ${maxBytes} bytes, got ${bytes}`);
  if (!text.isWellFormed()) throw invalid(field, 'is not well-formed Unicode');
  if (control.test(text)) throw invalid(field, 'must not have control characters');
}
