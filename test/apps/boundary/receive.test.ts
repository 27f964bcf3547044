import { expect, test } from 'vitest';
import { type ReceivedFact, receivedEntry } from '../../../src/apps/boundary/handoff/receive.ts';
import { until } from '../../support/until.ts';
import { testNode } from './rpc/node.ts';
import { consumer } from './sdk/scene.ts';
import { fact } from './store/facts.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

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

test('BND-8: records that no node would write go into quarantine on both sides, and consumers get what is behind them', async () => {
  const { plant, enterprise, authority, first, append, push } = await twoZones();
  await append('a');
  const malformed: readonly object[] = [
    { producedAt: 1.5 },
    { acceptedAt: undefined },
    { labels: { line: 4 } },
    { object: 'no json' },
    { subject: 'no kind' },
    { gap: { reason: 'x', message: 'y', messageId: 'z' } },
  ];
  // A source that does not check them.
  for (const [i, changes] of malformed.entries()) await plant.store.append(out, fact(`poison${i}`, changes));
  await append('b');
  expect(await push()).toBe(malformed.length + 2);
  for (const kept of [
    await enterprise.store.quarantined(into, { after: 0, limit: 10 }),
    await plant.store.quarantined(out, { after: 0, limit: 10 }),
  ])
    expect(kept.map(({ messageId, reason }) => [messageId, reason])).toEqual(
      malformed.map((_, i) => [`poison${i}`, 'invalid_record']),
    );
  const received: string[] = [];
  const erp = consumer({
    url: `https://localhost:${first.port}`,
    tls: {
      ...(await authority.issue({ uris: ['spiffe://example/zone/enterprise/consumer'] })),
      ca: authority.ca,
    },
    handler: async ({ messageId }) => void received.push(messageId),
    onGap: (gap) => void received.push(gap.kind === 'quarantined' ? gap.reason : gap.kind),
  });
  erp.start();
  await until('all of them have come', () => received.length >= malformed.length + 2);
  expect(received).toEqual(['a', ...malformed.map(() => 'invalid_record'), 'b']);
});
