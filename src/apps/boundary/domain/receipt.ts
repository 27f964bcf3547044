/** What a receiver has durably, signed by it: both sides keep it. */
import { type KeyObject, sign, verify } from 'node:crypto';

export interface Receipt {
  readonly tenantId: string;
  readonly from: string;
  readonly to: string;
  /** Of the sender's stream. */
  readonly epoch: string;
  readonly fromOffset: number;
  readonly toOffset: number;
  /** The sender's chain hash at `toOffset`, as the receiver has computed it: it stands for everything up to there. */
  readonly chain: string;
  /** The receiver's clock, in milliseconds since 1970. */
  readonly receivedAt: number;
}

export interface SignedReceipt extends Receipt {
  readonly keyId: string;
  /** Ed25519 over `receiptText`. */
  readonly signature: Uint8Array;
}

/**
 * The bytes that are signed: a line for each part, in this order. No part can have a line break in it: zones are slugs,
 * a tenant's name has no control characters, the others are digits and hex.
 */
export const receiptText = (receipt: Receipt): string =>
  [
    'tallyman boundary receipt 1',
    receipt.tenantId,
    receipt.from,
    receipt.to,
    receipt.epoch,
    receipt.fromOffset,
    receipt.toOffset,
    receipt.chain,
    receipt.receivedAt,
  ].join('\n');

export interface ReceiptKey {
  readonly id: string;
  /** Ed25519. */
  readonly privateKey: KeyObject;
}

export const signReceipt = (receipt: Receipt, key: ReceiptKey): SignedReceipt => ({
  ...receipt,
  keyId: key.id,
  signature: sign(null, Buffer.from(receiptText(receipt)), key.privateKey),
});

export const isSignedBy = (receipt: SignedReceipt, publicKey: KeyObject): boolean =>
  verify(null, Buffer.from(receiptText(receipt)), publicKey, receipt.signature);
