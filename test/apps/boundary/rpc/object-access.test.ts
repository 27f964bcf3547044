/** Who may read which objects, over the wire with certificates. */
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { expect, test } from 'vitest';
import { collectOrphans } from '../../../../src/apps/boundary/objects/collect.ts';
import { FileBlobs } from '../../../../src/apps/boundary/objects/files.ts';
import { BoundaryService } from '../../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import { digestOf } from '../objects/bytes.ts';
import { TestAuthority } from './certificates.ts';
import { testNode } from './node.ts';

async function scene() {
  const authority = await TestAuthority.make();
  const parts = await testNode('plant-a');
  const tls = { load: () => authority.server(), identities: { trustDomain: 'example' } };
  const { port } = await parts.serve(tls);
  const as = async (path: string) => {
    const credentials = {
      ...(await authority.issue({ uris: [`spiffe://example/zone/${path}`] })),
      ca: authority.ca,
    };
    const client = createClient(
      BoundaryService,
      createGrpcTransport({ baseUrl: `https://localhost:${port}`, nodeOptions: credentials }),
    );
    /** How the object is answered by plain HTTP, and by the service. */
    const reads = async (key: string): Promise<readonly (number | string)[]> => {
      const plain = [];
      for (const method of ['GET', 'HEAD']) {
        const sent = request({
          ...credentials,
          host: 'localhost',
          port,
          method,
          path: `/objects/files/${key}`,
        });
        sent.end();
        const [answer] = (await once(sent, 'response')) as [IncomingMessage];
        answer.resume();
        plain.push(answer.statusCode ?? 0);
      }
      try {
        for await (const { part } of client.getObject({ bucket: 'files', key }))
          if (part.case === 'data') plain.push(Buffer.from(part.value).toString());
      } catch (error) {
        plain.push(Code[ConnectError.from(error).code]);
      }
      return plain;
    };
    return { client, reads };
  };
  const put = async (key: string): Promise<string> => {
    async function* source() {
      yield Buffer.from(key);
    }
    await parts.objects.put({ tenantId: 'default', bucket: 'files', key }, source());
    return digestOf(Buffer.from(key));
  };
  const append = async (messageId: string, key: string) =>
    parts.node.intake.append(
      { tenantId: 'default', authorize: () => {} },
      {
        messageId,
        fromZone: 'plant-a',
        toZone: 'enterprise',
        producedAt: 1,
        subject: 'order:1',
        predicate: 'is',
        objectJson: JSON.stringify({ bucket: 'files', key, digest: await put(key) }),
      },
    );
  return { ...parts, as, put, append };
}

const refused = [403, 403, 'PermissionDenied'];
const absent = [404, 404, 'NotFound'];
const read = (key: string) => [200, 200, key];

test('BND-5: a peer reads what facts to its zone name, and nothing else; a consumer what facts name; a refusal is noted', async () => {
  const { as, put, append, objects, refusals } = await scene();
  await append('m1', 'for-enterprise');
  await put('for-nobody');
  const hold = { tenantId: 'default', bucket: 'files', from: 'plant-a', messageId: 'm2' };
  await objects.hold({ ...hold, key: 'for-lab', digest: await put('for-lab'), buffer: 'store', to: 'lab' });
  // What came from another zone, and went to this one.
  await objects.hold({ ...hold, key: 'came', digest: await put('came'), buffer: 'forward', to: 'plant-a' });
  const keys = ['for-enterprise', 'for-lab', 'came', 'for-nobody', 'never-stored'];
  const allOf = async (path: string) => {
    const { reads } = await as(path);
    return Promise.all(keys.map(reads));
  };
  expect(await allOf('enterprise/peer')).toEqual([read('for-enterprise'), refused, refused, refused, absent]);
  expect(refusals).toContainEqual(
    expect.objectContaining({
      name: 'spiffe://example/zone/enterprise/peer',
      action: 'get objects',
      code: 'not_allowed',
      reason: expect.stringContaining(
        'no fact to zone "enterprise" names object "for-lab" in bucket "files"',
      ),
    }),
  );
  expect(refusals).toHaveLength(9);
  expect(await allOf('plant-a/consumer')).toEqual([
    ...['for-enterprise', 'for-lab', 'came'].map(read),
    refused,
    absent,
  ]);
  expect(await allOf('plant-a/producer')).toEqual([...keys.slice(0, 4).map(read), absent]);
  // Nothing goes to the laboratory from this node, and others belong elsewhere.
  for (const path of ['lab/peer', 'enterprise/consumer', 'enterprise/producer'])
    expect(await allOf(path)).toEqual(keys.map(() => refused));
});

test('BND-5: an append that is refused gives its zone no right to the object for long', async () => {
  const { as, append, put, objects, store, database, folder } = await scene();
  await append('m1', 'for-enterprise');
  const name = { tenantId: 'default', bucket: 'files' };
  // Refused after it has held its object: the message id is taken.
  await put('secret');
  await expect(append('m1', 'secret')).rejects.toMatchObject({ reason: 'conflicting_duplicate' });
  expect(await objects.isNamed({ ...name, key: 'secret' }, { sentTo: 'enterprise' })).toBe(true);
  // The same object under the same id, to another zone.
  const digest = digestOf(Buffer.from('for-enterprise'));
  const hold = {
    ...name,
    key: 'for-enterprise',
    digest,
    buffer: 'store',
    from: 'plant-a',
    messageId: 'm1',
  } as const;
  await objects.hold({ ...hold, to: 'lab' });
  await database.query('select pg_sleep(0.02)');
  const collected = await collectOrphans({
    database,
    blobs: await FileBlobs.open(folder),
    store,
    uploadGraceMs: 3_600_000,
    graceMs: 3_600_000,
    holdGraceMs: 0,
  });
  expect(collected.holds).toBe(2);
  expect(await objects.isNamed({ ...name, key: 'for-enterprise' }, { sentTo: 'lab' })).toBe(false);
  const { reads } = await as('enterprise/peer');
  expect(await reads('secret')).toEqual(refused);
  expect(await reads('for-enterprise')).toEqual(read('for-enterprise'));
});
