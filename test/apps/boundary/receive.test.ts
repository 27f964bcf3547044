import { expect, test } from 'vitest';
import { type ReceivedFact, receivedEntry } from '../../../src/apps/boundary/handoff/receive.ts';
import { testNode } from './rpc/node.ts';
import { fact } from './store/facts.ts';
import { into, out, pulling } from './two-zones.ts';

const digest = `sha256:${'ab'.repeat(32)}`;
const bad: readonly unknown[] = [
  { bucket: 'files\u0000', key: 'x', digest },
  { bucket: 'files', key: 'x\u0000', digest },
  { bucket: 'files', key: 'x', digest: `${digest}\u0000` },
  { bucket: 'files', key: 7, digest },
  { bucket: 'files', key: 'x', digest, mediaType: { a: 1 } },
  { bucket: 'files' },
  'files/x',
];

test('BND-8: a reference that no node would accept is refused alone: facts that are received at the same moment are taken', async () => {
  const { objects } = await testNode('enterprise');
  async function* bytes() {
    yield Buffer.from('bytes');
  }
  const name = { bucket: 'files', key: 'good' };
  const { digest: stored } = await objects.put({ ...name, tenantId: 'default' }, bytes());
  const received = (n: number, reference: unknown, key = `m${n}`): ReceivedFact => ({
    offset: n,
    key,
    digest: '',
    chain: '',
    record: JSON.stringify({ reference }),
  });
  const good = { ...name, digest: stored };
  const entries = await Promise.all([
    receivedEntry(objects, into, received(1, good)),
    ...bad.map((reference, i) => receivedEntry(objects, into, received(2 + i, reference))),
    receivedEntry(objects, into, received(100, good)),
  ]);
  expect(entries.map(({ refusal }) => refusal?.reason)).toEqual([
    undefined,
    ...bad.map(() => 'invalid_field'),
    undefined,
  ]);
  // A message id is what a receiver keeps a gap record by: the delivery is refused, and no other one with it.
  const [other, badKey] = await Promise.allSettled([
    receivedEntry(objects, into, received(1, good)),
    receivedEntry(objects, into, received(2, good, 'm\u0000')),
  ]);
  expect(other.status).toBe('fulfilled');
  expect(badKey).toMatchObject({ status: 'rejected', reason: { code: 'INVALID_ARGUMENT' } });
});

test('BND-8: such a fact goes into quarantine on both sides, and the stream goes on', async () => {
  const { plant, enterprise, append, pull } = await pulling();
  await append('a');
  // A source that does not check it.
  await plant.store.append(out, fact('poison', { reference: { bucket: 'files', key: 'x\u0000', digest } }));
  await append('b');
  expect(await pull()).toBe(3);
  for (const kept of [
    await enterprise.store.quarantined(into, { after: 0, limit: 10 }),
    await plant.store.quarantined(out, { after: 0, limit: 10 }),
  ])
    expect(kept).toMatchObject([{ offset: 2, messageId: 'poison', reason: 'invalid_field' }]);
  expect((await plant.store.consumers(out))[0]?.cursor).toBe(3);
});
