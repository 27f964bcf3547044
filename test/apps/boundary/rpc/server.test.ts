import { createHash, randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { type Client, createClient } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from '@connectrpc/connect-node';
import { describe, expect, test } from 'vitest';
import { isSignedBy } from '../../../../src/apps/boundary/domain/receipt.ts';
import { BoundaryService } from '../../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import { startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import { firstChain } from '../../../../src/engine/log/entry.ts';
import { TestAuthority } from './certificates.ts';
import { testNode } from './node.ts';

const service = 'tallyman.boundary.v1.BoundaryService';
const stream = { from_zone: 'Plant A', to_zone: 'Enterprise' };

const fact = (messageId: string, object: unknown = { state: 'done' }, more: object = {}) => ({
  envelope: {
    message_id: messageId,
    from_zone: 'Plant A',
    to_zone: 'Enterprise',
    produced_at_unix_ms: Date.UTC(2026, 2, 6),
    ...more,
  },
  fact: {
    subject: 'work_order:WO-2026-001',
    predicate: 'has_batch_attachment',
    object_json: JSON.stringify(object),
  },
});

/** As curl does it: JSON over HTTP/1.1. */
async function plain() {
  const scene = await testNode();
  const { port } = await scene.serve();
  const base = `http://127.0.0.1:${port}`;
  const call = async (method: string, body: unknown) => {
    const response = await fetch(`${base}/${service}/${method}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const answer = (await response.json()) as Record<string, unknown>;
    return { ...answer, status: response.status } as Record<string, unknown>;
  };
  return { ...scene, base, call };
}

describe('JSON over HTTP/1.1', () => {
  test("BND-2: the producer's sequence as integrators know it, call by call", async () => {
    const { base, call } = await plain();
    const bytes = randomBytes(48_213);
    const put = await fetch(`${base}/objects/batch-files/order-2026-03-06-001.pdf`, {
      method: 'PUT',
      headers: { 'content-type': 'application/pdf' },
      body: bytes,
    });
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    expect([put.status, await put.json()]).toEqual([200, { digest, size: 48_213 }]);
    const object = {
      bucket: 'batch-files',
      key: 'order-2026-03-06-001.pdf',
      digest,
      size: 48_213,
      media_type: 'application/pdf',
      file_name: 'order-2026-03-06-001.pdf',
    };
    const more = { correlation_id: 'order-2026-03-06-001', labels: { line: '4' } };
    const first = fact('wo-2026-001/attachment', object, more);
    for (const existing of [false, true, true])
      expect(await call('AppendFact', first)).toEqual({ status: 200, offset: '1', existing });
    const later = fact('wo-2026-001/attachment', object, { produced_at_unix_ms: 5, labels: { line: '5' } });
    expect(await call('AppendFact', later)).toMatchObject({ offset: '1' });
    expect(await call('AppendFact', fact('wo-2026-001/attachment', { ...object, size: 1 }))).toMatchObject({
      status: 409,
      code: 'already_exists',
      message: expect.stringContaining('conflicting_duplicate'),
    });
    // A producer that crashed asks for its message id.
    expect(
      await call('FindFact', { from_zone: 'Plant A', message_id: 'wo-2026-001/attachment' }),
    ).toMatchObject({
      stream: { from_zone: 'plant-a', to_zone: 'enterprise' },
      offset: '1',
      fact: {
        fact: {
          envelope: { correlation_id: 'order-2026-03-06-001', labels: { line: '4' } },
          fact: { object_ref: { ...object, size: '48213' } },
        },
      },
    });
    expect(await call('FindFact', { from_zone: 'plant-a', message_id: 'x' })).toMatchObject({ status: 404 });
  });

  test('BND-7: a consumer fetches, confirms, and goes on', async () => {
    const { call } = await plain();
    const facts = Array.from({ length: 5 }, (_, i) => fact(`m${i + 1}`, i));
    expect(await call('AppendFacts', { facts })).toMatchObject({
      results: [1, 2, 3, 4, 5].map((n) => ({ appended: { offset: String(n), existing: false } })),
    });
    const fetchThree = { stream, consumer_name: 'erp', limit: 3 };
    const first = await call('FetchFacts', fetchThree);
    expect(first).toMatchObject({ status: 200, cursor: '0', backlog: '5' });
    expect((first.facts as { offset: string }[]).map(({ offset }) => offset)).toEqual(['1', '2', '3']);
    const confirm = (offset: number) => call('ConfirmReceipt', { stream, consumer_name: 'erp', offset });
    expect(await confirm(4)).toMatchObject({ status: 400, code: 'out_of_range' });
    expect(await confirm(3)).toEqual({ status: 200, cursor_advanced_to: '3' });
    expect((await call('FetchFacts', fetchThree)).facts).toMatchObject([
      { offset: '4', fact: { fact: { object_json: '3' } } },
      { offset: '5' },
    ]);
    expect(await call('GetFrontier', { stream })).toMatchObject({ frontier: { offset: '5' } });
  });

  test('BND-7: a consumer cannot begin at a time that no clock shows', async () => {
    const { call, store } = await plain();
    await call('AppendFact', fact('m1'));
    for (const at of ['8640000000000001', '9223372036854775807', '-1'])
      expect(
        await call('FetchFacts', { stream, consumer_name: 'erp', start: { at_unix_ms: at } }),
      ).toMatchObject({
        status: 400,
        code: 'invalid_argument',
        message: expect.stringContaining(`start.at_unix_ms must be milliseconds since 1970, got ${at}`),
      });
    expect(
      await store.consumers({ tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' }),
    ).toEqual([]);
    const last = { stream, consumer_name: 'erp', start: { at_unix_ms: '253402300799999' } };
    expect(await call('FetchFacts', last)).toMatchObject({ status: 200, cursor: '1' });
  });

  test('BND-1: of a batch each fact has its own answer', async () => {
    const { call } = await plain();
    await call('AppendFact', fact('taken', 1));
    const bad = fact('bad');
    bad.fact.predicate = 'Not Snake';
    const reference = { bucket: 'b', key: 'k', digest: `sha256:${'0'.repeat(64)}` };
    const facts = [fact('a'), bad, fact('taken', 2), fact('lost', reference), fact('a'), fact('b')];
    const { results } = await call('AppendFacts', { facts });
    expect(results).toMatchObject([
      { appended: { offset: '2', existing: false } },
      { refused: { reason: 'invalid_field', code: 'invalid_argument' } },
      { refused: { reason: 'conflicting_duplicate', code: 'already_exists' } },
      { refused: { reason: 'object_not_stored', code: 'failed_precondition' } },
      { appended: { offset: '2', existing: true } },
      { appended: { offset: '3', existing: false } },
    ]);
    const many = Array.from({ length: 1001 }, (_, i) => fact(`n${i}`));
    expect(await call('AppendFacts', { facts: many })).toMatchObject({ status: 400 });
    const large = Array.from({ length: 3 }, (_, i) => fact(`l${i}`, 'x'.repeat(400_000)));
    expect(await call('AppendFacts', { facts: large })).toMatchObject({ status: 400 });
  });

  test('BND-1: unknown fields, bad values and messages that are too large are refused', async () => {
    const { call, base, store } = await plain();
    const refused = async (body: unknown) => {
      const { status, message } = await call('AppendFact', body);
      expect(status).toBe(400);
      return message;
    };
    expect(await refused({ ...fact('a'), facts: 1 })).toContain('unknown');
    expect(await refused({ envelope: { ...fact('a').envelope, correlationid: 'x' } })).toContain(
      'correlationid',
    );
    expect(await refused({ fact: fact('a').fact })).toContain('envelope is missing');
    expect(await refused(fact('a', 1, { to_zone: 'Enterprize' }))).toContain('did you mean "enterprise"?');
    expect(await call('AppendFact', fact('a', 1, { from_zone: 'lab' }))).toMatchObject({ status: 403 });
    const large = await call('AppendFact', fact('a', 'x'.repeat(5 * 1024 * 1024)));
    expect(large).toMatchObject({ status: 429, code: 'resource_exhausted' });
    expect((await fetch(`${base}/nothing`)).status).toBe(404);
    expect(await store.streams('default')).toEqual([]);
  }, 120_000);

  test('BND-1: objects by plain PUT, HEAD and GET, with ranges, and resumed after a cut', async () => {
    const { base, objects } = await plain();
    const url = `${base}/objects/batch-files/a%20folder/x.bin`;
    const bytes = randomBytes(300_000);
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    // The line is cut after the first part.
    const name = { tenantId: 'default', bucket: 'batch-files', key: 'a folder/x.bin' };
    async function* cut() {
      yield bytes.subarray(0, 100_000);
      throw new Error('cut');
    }
    await expect(objects.put(name, cut())).rejects.toThrow('cut');
    const head = await fetch(url, { method: 'HEAD' });
    expect([head.status, head.headers.get('x-upload-offset')]).toEqual([404, '100000']);
    const rest = await fetch(url, {
      method: 'PUT',
      headers: { 'content-range': 'bytes 100000-299999/300000', 'x-object-digest': digest },
      body: bytes.subarray(100_000),
    });
    expect([rest.status, await rest.json()]).toEqual([200, { digest, size: 300_000 }]);
    const whole = await fetch(url);
    expect(whole.headers.get('x-object-digest')).toBe(digest);
    expect(Buffer.from(await whole.arrayBuffer()).equals(bytes)).toBe(true);
    const ranges = {
      'bytes=10-19': [10, 20],
      'bytes=299990-': [299_990, 300_000],
      'bytes=-5': [299_995, 300_000],
    };
    for (const [range, [from, to]] of Object.entries(ranges)) {
      const part = await fetch(url, { headers: { range } });
      expect([part.status, part.headers.get('content-range')]).toEqual([
        206,
        `bytes ${from}-${(to ?? 0) - 1}/300000`,
      ]);
      expect(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(from, to))).toBe(true);
    }
    expect((await fetch(url, { headers: { range: 'bytes=300000-' } })).status).toBe(416);
    const other = await fetch(url, { method: 'PUT', body: 'other bytes' });
    expect([other.status, await other.json()]).toMatchObject([409, { reason: 'conflicting_object' }]);
    expect((await fetch(`${url}x`)).status).toBe(404);
    expect((await fetch(url, { method: 'DELETE' })).status).toBe(400);
  });

  test('BND-12: without TLS a page in a browser gets no answer', async () => {
    const { base, refusals } = await plain();
    const status = async (headers: Record<string, string>) => {
      const answer = Promise.withResolvers<number>();
      request(`${base}/objects/b/k`, { headers }, (response) => {
        response.resume();
        answer.resolve(response.statusCode ?? 0);
      })
        .on('error', answer.reject)
        .end();
      return answer.promise;
    };
    expect(await status({})).toBe(404);
    expect(await status({ host: 'evil.example' })).toBe(403);
    expect(await status({ origin: 'http://evil.example' })).toBe(403);
    expect(refusals).toHaveLength(2);
  });

  test('BND-12: without TLS a node listens on loopback only', async () => {
    const { node } = await testNode();
    for (const host of ['0.0.0.0', '::', '192.168.0.1', 'plant.example'])
      await expect(startBoundaryServer({ node, host, port: 0 })).rejects.toThrow('listens on loopback only');
  });
});

describe('gRPC, gRPC-Web and Connect over TLS', () => {
  const append = async (client: Client<typeof BoundaryService>, id: string) => {
    const { offset } = await client.appendFact({
      envelope: { messageId: id, fromZone: 'plant-a', toZone: 'enterprise', producedAtUnixMs: 1n },
      fact: { subject: 'order:1', predicate: 'has_state', objectJson: '1' },
    });
    return offset;
  };

  test('BND-1: one port speaks all of them, over HTTP/1.1 and HTTP/2; objects are streamed', async () => {
    const authority = await TestAuthority.make();
    const { serve } = await testNode();
    const { port } = await serve({ load: () => authority.server(), identities: { trustDomain: 'example' } });
    const nodeOptions = {
      ...(await authority.issue({ uris: ['spiffe://example/zone/plant-a/producer'] })),
      ca: authority.ca,
    };
    const baseUrl = `https://localhost:${port}`;
    const transports = [
      createGrpcTransport({ baseUrl, nodeOptions }),
      createGrpcWebTransport({ baseUrl, httpVersion: '2', nodeOptions }),
      createGrpcWebTransport({ baseUrl, httpVersion: '1.1', nodeOptions }),
      createConnectTransport({ baseUrl, httpVersion: '2', nodeOptions, useBinaryFormat: true }),
      createConnectTransport({ baseUrl, httpVersion: '1.1', nodeOptions, useBinaryFormat: false }),
    ];
    const offsets = [];
    for (const [i, transport] of transports.entries())
      offsets.push(await append(createClient(BoundaryService, transport), `m${i}`));
    expect(offsets).toEqual([1n, 2n, 3n, 4n, 5n]);

    const client = createClient(BoundaryService, createGrpcTransport({ baseUrl, nodeOptions }));
    const chunk = randomBytes(500_000);
    async function* parts() {
      yield { part: { case: 'header' as const, value: { bucket: 'b', key: 'large' } } };
      for (let n = 0; n < 20; n++) yield { part: { case: 'data' as const, value: chunk } };
    }
    const { size, digest } = await client.putObject(parts());
    expect(size).toBe(10_000_000n);
    const hash = createHash('sha256');
    for await (const { part } of client.getObject({ bucket: 'b', key: 'large' })) {
      if (part.case === 'info') expect(part.value).toMatchObject({ digest, size });
      else if (part.case === 'data') hash.update(part.value);
    }
    expect(`sha256:${hash.digest('hex')}`).toBe(digest);
  });

  test('BND-8: a peer delivers facts into the forward buffer and gets a signed receipt', async () => {
    const authority = await TestAuthority.make();
    const plant = await testNode('plant-a');
    const enterprise = await testNode('enterprise');
    const { port } = await enterprise.serve({
      load: () => authority.server(),
      identities: { trustDomain: 'example' },
    });
    const clientAs = async (path: string) =>
      createClient(
        BoundaryService,
        createGrpcTransport({
          baseUrl: `https://localhost:${port}`,
          nodeOptions: {
            ...(await authority.issue({ uris: [`spiffe://example/zone/${path}`] })),
            ca: authority.ca,
          },
        }),
      );
    const caller = { tenantId: 'default', authorize: () => {} };
    const input = {
      fromZone: 'plant-a',
      toZone: 'enterprise',
      producedAt: 1,
      subject: 'order:1',
      predicate: 'is',
      objectJson: '1',
    };
    for (const messageId of ['a', 'b', 'c']) await plant.node.intake.append(caller, { ...input, messageId });
    const out = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' } as const;
    const { epoch = '' } = (await plant.store.state(out)) ?? {};
    const entries = await plant.store.read(out, { after: 0, limit: 10, maxBytes: 100_000 });
    const delivery = {
      stream: { fromZone: 'plant-a', toZone: 'enterprise' },
      epoch,
      chainBefore: firstChain(epoch),
      facts: entries.map(({ offset, key, digest, chain, text }) => ({
        offset: BigInt(offset),
        key,
        digest,
        chain,
        record: text,
      })),
    };
    const peer = await clientAs('plant-a/peer');
    const { frontier, receipt } = await peer.deliverFacts(delivery);
    expect(frontier).toMatchObject({ epoch, offset: 3n, chain: entries[2]?.chain });
    const [kept] = await enterprise.store.receipts({ ...out, buffer: 'forward' }, { after: 0, limit: 1 });
    expect(kept && isSignedBy(kept, enterprise.publicKey)).toBe(true);
    expect(Buffer.from(receipt?.signature ?? [])).toEqual(kept?.signature);
    expect((await peer.getFrontier({ stream: delivery.stream })).frontier?.offset).toBe(3n);
    const consumer = await clientAs('enterprise/consumer');
    const { facts } = await consumer.fetchFacts({ stream: delivery.stream, consumerName: 'erp' });
    expect(facts.map(({ entry }) => entry.case === 'fact' && entry.value.envelope?.messageId)).toEqual([
      'a',
      'b',
      'c',
    ]);
  });
});
