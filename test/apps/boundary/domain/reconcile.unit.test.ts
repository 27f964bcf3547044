import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { isSignedBy, type SignedReceipt, signReceipt } from '../../../../src/apps/boundary/domain/receipt.ts';
import {
  type ReceiverSide,
  reconcile,
  type SourceSide,
} from '../../../../src/apps/boundary/domain/reconcile.ts';

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const epoch = '0190d2c4-0000-7000-8000-000000000000';
const chainAt = (offset: number) => offset.toString(16).padStart(64, '0');
const receipt = (fromOffset: number, toOffset: number, chain = chainAt(toOffset)): SignedReceipt =>
  signReceipt(
    {
      tenantId: 'default',
      from: 'plant-a',
      to: 'enterprise',
      epoch,
      fromOffset,
      toOffset,
      chain,
      receivedAt: 1000 * toOffset,
    },
    { id: 'k1', privateKey },
  );
const receipts = [receipt(1, 10), receipt(11, 15), receipt(16, 30)];
const source: SourceSide = {
  epoch,
  last: 42,
  receipts,
  chains: new Map([10, 15, 30].map((offset) => [offset, chainAt(offset)])),
};
const receiver: ReceiverSide = {
  frontier: { epoch, offset: 30, chain: chainAt(30) },
  receipts,
  quarantined: [],
};
const run = (a: Partial<SourceSide> = {}, b: Partial<ReceiverSide> = {}) =>
  reconcile({ ...source, ...a }, { ...receiver, ...b }, (each) => isSignedBy(each, publicKey));

describe('reconcile', () => {
  test('BND-10: says what crossed when, and what did not', () => {
    const quarantined = [{ offset: 12, messageId: 'm', reason: 'too_large' }];
    expect(run({ receipts: receipts.slice(1) }, { quarantined })).toEqual({
      crossed: [
        { from: 1, to: 10, at: new Date(10_000), isCopyMissing: true },
        { from: 11, to: 15, at: new Date(15_000), isCopyMissing: false },
        { from: 16, to: 30, at: new Date(30_000), isCopyMissing: false },
      ],
      notCrossed: { from: 31, to: 42 },
      quarantined,
      problems: [],
    });
    expect(run({ last: 30 }).notCrossed).toBeUndefined();
    expect(run({}, { frontier: undefined, receipts: [] }).problems).toHaveLength(3);
    expect(run({ receipts: [] }, { frontier: undefined, receipts: [] })).toMatchObject({
      problems: [],
      notCrossed: { from: 1, to: 42 },
    });
  });

  test.each<[string, Partial<SourceSide>, Partial<ReceiverSide>, string]>([
    ['another epoch', { epoch: 'other' }, {}, 'the source is in epoch other'],
    ['a source that was restored', { last: 29 }, {}, 'the source ends at 29: it was restored'],
    [
      'a hole in the receipts',
      {},
      { receipts: [receipts[0], receipts[2]] as SignedReceipt[] },
      'covers offsets 11 to 15',
    ],
    ['a frontier beyond the receipts', {}, { receipts: receipts.slice(0, 2) }, 'covers offsets 16 to 30'],
    ['a receiver that was restored', {}, { receipts: receipts.slice(0, 2) }, 'is known to the source only'],
    ['facts that were changed', { chains: new Map([[15, chainAt(99)]]) }, {}, 'facts up to 15 were changed'],
    ['a frontier that differs', { chains: new Map([[30, chainAt(99)]]) }, {}, 'different chain hashes'],
    [
      'a receipt that was changed',
      {},
      { receipts: [{ ...receipts[0], toOffset: 9 } as SignedReceipt, ...receipts.slice(1)] },
      'offsets 1 to 9 is not signed by the receiver',
    ],
  ])('BND-10: %s is named', (_, a, b, problem) => {
    expect(run(a, b).problems.join('\n')).toContain(problem);
  });
});
