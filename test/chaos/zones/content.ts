/** What a fact of a producer holds follows from its message id, so that each byte can be checked without being remembered. */
import { createHash, hash } from 'node:crypto';
import { randomOf } from '../../support/random.ts';

const numberOf = (id: string): number => Number.parseInt(hash('sha256', id).slice(0, 8), 16);

export interface Content {
  readonly object: { readonly id: string; readonly text: string; readonly value: number };
  /** Every few facts name an object of this many bytes. */
  readonly attachmentBytes: number;
}

export function contentOf(id: string): Content {
  const random = randomOf(numberOf(id));
  const text = 'grün € 𝄞 "\\ '.repeat(random.whole(60));
  const attachmentBytes = random.chance(0.04) ? 1 + random.whole(random.chance(0.1) ? 600_000 : 40_000) : 0;
  return { object: { id, text, value: random.next() }, attachmentBytes };
}

/** The same bytes for one id each time. */
export function* attachmentOf(id: string, bytes: number): Generator<Buffer> {
  for (let at = 0, n = 0; at < bytes; n += 1) {
    const block = Buffer.alloc(
      Math.min(8192, bytes - at),
      createHash('sha256').update(`${id} ${n}`).digest(),
    );
    at += block.length;
    yield block;
  }
}

export function digestOf(id: string, bytes: number): string {
  const sum = createHash('sha256');
  for (const block of attachmentOf(id, bytes)) sum.update(block);
  return `sha256:${sum.digest('hex')}`;
}
