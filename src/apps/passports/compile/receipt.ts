import { hashJson } from './canonical.ts';
import type { Hash, Receipt } from './types.ts';

/** What is signed: the 32 bytes that this hex stands for. */
export const receiptHash = (receipt: Receipt): Hash =>
  hashJson(receipt as unknown as Parameters<typeof hashJson>[0]);
