import { createHash, randomBytes } from 'node:crypto';
import { type Client, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { expect, onTestFinished, test } from 'vitest';
import { BoundaryError } from '../../../../src/apps/boundary/domain/errors.ts';
import { Intake } from '../../../../src/apps/boundary/intake.ts';
import type { Admission } from '../../../../src/apps/boundary/limits/admission.ts';
import { BoundaryService } from '../../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import { startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import { DirectProducer, type DirectProducerOptions } from '../../../../src/apps/boundary/sdk/direct.ts';
import { messageId } from '../../../../src/apps/boundary/sdk/message-id.ts';
import { freePorts } from '../../../support/services/service.ts';
import { until } from '../../../support/until.ts';
import { TestAuthority } from '../rpc/certificates.ts';
import { testNode } from '../rpc/node.ts';
import { cuttingProxy, fact, numbers, out, plant } from './scene.ts';

const bucket = 'batch-files';
const key = 'order-2026-03-06-001.pdf';

function direct(url: string, options: Partial<DirectProducerOptions> = {}): DirectProducer {
  const made = new DirectProducer({ url, fromZone: 'Plant A', retry: { baseMs: 5 }, ...options });
  onTestFinished(() => made.close());
  return made;
}

/** A client that was generated from the proto file, over gRPC with a certificate. */
async function generated() {
  const authority = await TestAuthority.make();
  const scene = await testNode('plant-a');
  const { port } = await scene.serve({
    load: () => authority.server(),
    identities: { trustDomain: 'example' },
  });
  const nodeOptions = {
    ...(await authority.issue({ uris: ['spiffe://example/zone/plant-a/producer'] })),
    ca: authority.ca,
  };
  const client = createClient(
    BoundaryService,
    createGrpcTransport({ baseUrl: `https://localhost:${port}`, nodeOptions }),
  );
  return { ...scene, client };
}

async function put(client: Client<typeof BoundaryService>, bytes: Uint8Array) {
  async function* parts() {
    yield { part: { case: 'header' as const, value: { bucket, key, mediaType: 'application/pdf' } } };
    yield { part: { case: 'data' as const, value: bytes } };
  }
  const { digest, size } = await client.putObject(parts());
  return { digest, size };
}

const request = (object: unknown, more: object = {}) => ({
  envelope: {
    messageId: 'wo-2026-001/attachment',
    fromZone: 'Plant A',
    toZone: 'Enterprise',
    producedAtUnixMs: BigInt(Date.UTC(2026, 2, 6)),
    correlationId: 'order-2026-03-06-001',
    labels: { line: '4', shift: 'early' },
    ...more,
  },
  fact: {
    subject: 'work_order:WO-2026-001',
    predicate: 'has_batch_attachment',
    objectJson: JSON.stringify(object),
  },
});

test("BND-2 BND-3: the producer's sequence as integrators know it, call by call", async () => {
  const { client, store } = await generated();
  const bytes = randomBytes(48_213);
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const object = { bucket, key, digest, size: 48_213, media_type: 'application/pdf', file_name: key };
  // The fact cannot come before its object.
  await expect(client.appendFact(request(object))).rejects.toThrow('object_not_stored');
  for (const _ of numbers(3)) {
    expect(await put(client, bytes)).toEqual({ digest, size: 48_213n });
    expect(await client.appendFact(request(object))).toMatchObject({ offset: 1n });
  }
  // Other order of members, other clock, other labels: the same fact.
  const turned = Object.fromEntries(Object.entries(object).reverse());
  const later = { producedAtUnixMs: 5n, labels: { line: '5' }, correlationId: 'other' };
  expect(await client.appendFact(request(turned, later))).toMatchObject({ offset: 1n, existing: true });
  await expect(client.appendFact(request({ ...object, size: 1 }))).rejects.toThrow('conflicting_duplicate');
  await expect(put(client, randomBytes(10))).rejects.toThrow('conflicting_object');
  const found = await client.findFact({ fromZone: 'Plant A', messageId: 'wo-2026-001/attachment' });
  expect(found).toMatchObject({ offset: 1n, stream: { fromZone: 'plant-a', toZone: 'enterprise' } });
  // Still so when the fact itself is long gone.
  await client.appendFact(request(1, { messageId: 'next' }));
  await store.trim(out, 1);
  expect(await client.appendFact(request(object))).toMatchObject({ offset: 1n, existing: true });
  await expect(client.appendFact(request({ ...object, size: 1 }))).rejects.toThrow('conflicting_duplicate');
});

test('BND-14: the same sequence with the SDK, without an outbox', async () => {
  const { url, entries } = await plant();
  const to = direct(url, { messageId: ({ subject, predicate }) => messageId(subject, predicate) });
  const bytes = randomBytes(48_213);
  const stored = await to.putObject(bucket, key, bytes, { mediaType: 'application/pdf' });
  expect(stored).toEqual({
    digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
    size: 48_213,
  });
  const attachment = { bucket, key, source: bytes, mediaType: 'application/pdf', fileName: key };
  const id = messageId('work_order:WO-2026-001', 'has_batch_attachment');
  for (const existing of [false, true, true])
    expect(
      await to.append({
        toZone: 'Enterprise',
        subject: 'work_order:WO-2026-001',
        predicate: 'has_batch_attachment',
        attachment,
        correlationId: 'order-2026-03-06-001',
        labels: { line: '4' },
      }),
    ).toEqual({ messageId: id, offset: 1, existing });
  expect(await entries()).toMatchObject([
    { key: id, record: { correlationId: 'order-2026-03-06-001', labels: { line: '4' } } },
  ]);
  await expect(
    to.append({ ...fact(id), subject: 'work_order:WO-2026-001', predicate: 'has_batch_attachment' }),
  ).rejects.toMatchObject({ code: 'ALREADY_EXISTS', reason: 'conflicting_duplicate', mayPass: false });
});

test('BND-14: a producer that does not know whether its fact is in asks for its message id', async () => {
  const { port, ids, url } = await plant();
  const proxy = await cuttingProxy(port);
  const to = direct(proxy.url, { retry: { retries: 2, baseMs: 5 } });
  proxy.losesAnswers = true;
  await expect(to.append(fact('lost answer'))).rejects.toMatchObject({ reason: 'no_answer', mayPass: true });
  // Three attempts, one fact.
  expect(proxy.requests).toBe(3);
  await until('it is in', async () => (await ids()).length === 1);
  const asked = direct(url);
  expect(await asked.find('lost answer')).toEqual({ offset: 1, toZone: 'enterprise' });
  expect(await asked.find('never sent')).toBeUndefined();
  expect(await asked.append(fact('lost answer'))).toMatchObject({ offset: 1, existing: true });
});

test('BND-14: a node that is away for a moment is not noticed; one that says no is believed', async () => {
  const { node, store } = await testNode('plant-a');
  const [port = 0] = await freePorts(1);
  const to = direct(`http://127.0.0.1:${port}`, { retry: { retries: 1000, baseMs: 5, maxMs: 50 } });
  const appended = to.append(fact('early'));
  const server = await startBoundaryServer({ node, host: '127.0.0.1', port });
  onTestFinished(() => server.stop());
  expect(await appended).toMatchObject({ offset: 1 });
  await expect(to.append({ ...fact('bad'), toZone: 'nowhere' })).rejects.toMatchObject({
    code: 'INVALID_ARGUMENT',
    isAnswer: true,
  });
  expect((await store.state(out))?.last).toBe(1);
});

test('BND-3: 64 concurrent appends of one message id are one fact with one offset', async () => {
  const { client, store } = await generated();
  const answers = await Promise.all(numbers(64).map(() => client.appendFact(request({ state: 'done' }))));
  expect(new Set(answers.map(({ offset }) => offset))).toEqual(new Set([1n]));
  expect(answers.filter(({ existing }) => !existing)).toHaveLength(1);
  expect((await store.state(out))?.last).toBe(1);
  // Those with other content are refused, each of them, and the others are not.
  const mixed = await Promise.allSettled(
    numbers(64).map((n) => client.appendFact(request({ state: n % 2 === 0 ? 'done' : 'other' }))),
  );
  expect(mixed.map(({ status }) => status === 'fulfilled')).toEqual(numbers(64).map((n) => n % 2 === 0));
  expect((await store.state(out))?.last).toBe(1);
});

test('BND-1: a fact that cannot be taken now keeps back those behind it, and nothing of other zones', async () => {
  const { intake, store } = await fullStream();
  const input = (messageId: string, toZone: string, subject = 'order:1') => ({
    messageId,
    fromZone: 'plant-a',
    toZone,
    producedAt: 1,
    subject,
    predicate: 'is',
    objectJson: '1',
  });
  const outcomes = await intake.appendAll({ tenantId: 'default', authorize: () => {} }, [
    input('bad', 'enterprise', 'no subject'),
    input('a', 'Enterprise'),
    input('b', 'enterprise'),
    input('c', 'lab'),
  ]);
  expect(
    outcomes.map((each) => ('refused' in each ? (each.refused as { reason?: string }).reason : 'in')),
  ).toEqual(['invalid_field', 'stream_full', 'held_back', 'in']);
  expect(await store.state(out)).toBeUndefined();
});

test('BND-14: after a commit that failed, the rest of its call is held back, and is in order when it is sent again', async () => {
  const { node, store, database } = await testNode('plant-a');
  await database.query(
    `create function not_now() returns trigger language plpgsql as
       $$ begin raise exception 'not now' using errcode = '57014'; end $$`,
  );
  await database.query(
    `create trigger not_now before insert on tallyman.log_entries for each row
       when (new.key = 'a1') execute function not_now()`,
  );
  const send = async (prefix: string) => {
    const outcomes = await node.intake.appendAll(
      { tenantId: 'default', authorize: () => {} },
      numbers(800).map((n) => ({
        messageId: `${prefix}${n}`,
        fromZone: 'plant-a',
        toZone: 'enterprise',
        producedAt: 1,
        subject: 'order:1',
        predicate: 'is',
        objectJson: '1',
      })),
    );
    return outcomes.map((each) =>
      'refused' in each ? ((each.refused as { reason?: string }).reason ?? 'failed') : each.appended.offset,
    );
  };
  // One of both calls is cut in two by the end of the first commit, which fails. What is left of the other one goes on.
  const [first, second] = await Promise.all([send('a'), send('b')]);
  expect(new Set(first)).toEqual(new Set(['failed']));
  expect(second).toEqual(numbers(800).map((n) => (n <= 200 ? 'failed' : 'held_back')));
  expect(await store.state(out)).toBeUndefined();
  await database.query('drop trigger not_now on tallyman.log_entries');
  expect(await send('b')).toEqual(numbers(800));
});

/** A node whose stream to the enterprise is full when it is first looked at, and not full the next time. */
async function fullStream() {
  const { node, store, objects } = await testNode('plant-a');
  let isFull = true;
  const admission = {
    admit: async ({ to }: { readonly to: string }) => {
      if (to !== 'enterprise' || !isFull) return;
      isFull = false;
      throw new BoundaryError('RESOURCE_EXHAUSTED', 'stream_full', 'it is full');
    },
  };
  const intake = new Intake({
    zone: node.zone,
    zones: node.zones,
    store,
    objects,
    admission: admission as unknown as Admission,
    holdGraceMs: 600_000,
  });
  return { store, intake };
}
