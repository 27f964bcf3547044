/** Facts and receipts for tests of the storage. */
import { generateKeyPairSync } from 'node:crypto';
import { contentDigest } from '../../../../src/apps/boundary/domain/fact.ts';
import { type Receipt, signReceipt } from '../../../../src/apps/boundary/domain/receipt.ts';
import type { FactRecord } from '../../../../src/apps/boundary/domain/record.ts';
import type { Zone } from '../../../../src/apps/boundary/domain/zones.ts';

export const { privateKey, publicKey } = generateKeyPairSync('ed25519');
export const sign = (receipt: Receipt) => signReceipt(receipt, { id: 'k1', privateKey });

export const numbers = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i);

export const record = (messageId: string, changes: Partial<FactRecord> = {}): FactRecord => ({
  v: 1,
  messageId,
  from: 'plant-a' as Zone,
  to: 'enterprise' as Zone,
  acceptedAt: 1,
  producedAt: 0,
  subject: 'order:1',
  predicate: 'has_state',
  object: '{"state":"done"}',
  ...changes,
});

export const fact = (messageId: string, changes: Partial<FactRecord> = {}) => {
  const made = record(messageId, changes);
  return { record: made, digest: contentDigest(made) };
};

export const codeOf = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    (value) => value,
    ({ code, reason }: { code: string; reason: string }) => `${code} ${reason}`,
  );
