import { generateKeyPairSync } from 'node:crypto';
import { expect, test } from 'vitest';
import { isSignedBy, type Receipt, signReceipt } from '../../../../src/apps/boundary/domain/receipt.ts';

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const receipt: Receipt = {
  tenantId: 'default',
  from: 'plant-a',
  to: 'enterprise',
  epoch: '0190d2c4-0000-7000-8000-000000000000',
  fromOffset: 1,
  toOffset: 100,
  chain: 'ab'.repeat(32),
  receivedAt: 1_772_800_000_000,
};

test('BND-10: a receipt is signed over all of its parts, and nobody else can have made it', () => {
  const signed = signReceipt(receipt, { id: 'enterprise-1', privateKey });
  expect(isSignedBy(signed, publicKey)).toBe(true);
  expect(isSignedBy(signed, generateKeyPairSync('ed25519').publicKey)).toBe(false);
  const changes: Partial<Receipt>[] = [
    { tenantId: 'acme' },
    { from: 'plant-b' },
    { to: 'lab' },
    { epoch: '0190d2c4-0000-7000-8000-000000000001' },
    { fromOffset: 2 },
    { toOffset: 101 },
    { chain: 'ac'.repeat(32) },
    { receivedAt: 0 },
  ];
  for (const change of changes) expect(isSignedBy({ ...signed, ...change }, publicKey)).toBe(false);
});
