import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport } from '@connectrpc/connect-node';
import { expect, test } from 'vitest';
import { BoundaryService } from '../../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import { type Issued, TestAuthority } from './certificates.ts';
import { testNode } from './node.ts';

const uri = (path: string) => [`spiffe://example/zone/${path}`];
const fact = (messageId: string, fromZone = 'plant-a', toZone = 'enterprise') => ({
  envelope: { messageId, fromZone, toZone, producedAtUnixMs: 1n },
  fact: { subject: 'order:1', predicate: 'has_state', objectJson: '1' },
});

async function scene() {
  const authority = await TestAuthority.make();
  const { serve, refusals } = await testNode('plant-a');
  let material = await authority.server();
  const server = await serve({ load: async () => material, identities: { trustDomain: 'example' } });
  const clientWith = (issued: Partial<Issued>, { grpc = false, ca = authority.ca } = {}) => {
    const options = { baseUrl: `https://localhost:${server.port}`, nodeOptions: { ...issued, ca } };
    return createClient(
      BoundaryService,
      grpc ? createGrpcTransport(options) : createConnectTransport({ ...options, httpVersion: '1.1' }),
    );
  };
  const rotate = async (to: TestAuthority): Promise<void> => {
    material = await to.server();
    await server.reload();
  };
  return { authority, server, refusals, clientWith, rotate };
}

const refusalOf = async (call: Promise<unknown>): Promise<ConnectError> =>
  call.then(
    () => {
      throw new Error('it was not refused');
    },
    (error: unknown) => ConnectError.from(error),
  );

test('BND-12: callers without a good certificate are refused with a reason, and it is noted', async () => {
  const { authority, refusals, clientWith } = await scene();
  const producer = { uris: uri('plant-a/producer') };
  const other = await TestAuthority.make();
  const cases: readonly (readonly [Partial<Issued>, string])[] = [
    [{}, 'a client certificate is needed'],
    [await other.issue(producer), 'is not accepted'],
    [await authority.issue({ ...producer, notAfter: new Date(Date.now() - 3_600_000) }), 'EXPIRED'],
    [await authority.issue({ commonName: 'plant-a/producer' }), 'has no URI spiffe://example'],
    [await authority.issue({ uris: uri('plant-a/admin') }), 'names no role'],
    [await authority.issue({ uris: [...uri('plant-a/peer'), ...uri('lab/peer')] }), 'has 2 URIs'],
  ];
  for (const [issued, reason] of cases)
    for (const grpc of [false, true]) {
      refusals.length = 0;
      const error = await refusalOf(clientWith(issued, { grpc }).appendFact(fact('a')));
      expect(error.code).toBe(Code.Unauthenticated);
      expect(refusals).toEqual([expect.objectContaining({ reason: expect.stringContaining(reason) })]);
      if (!grpc) expect(error.rawMessage).toContain(reason);
    }
});

test('BND-12: a certificate speaks for its own zone and role only', async () => {
  const { authority, refusals, clientWith } = await scene();
  const as = async (path: string) => clientWith(await authority.issue({ uris: uri(path) }));
  const denied = async (call: Promise<unknown>): Promise<string> => {
    const error = await refusalOf(call);
    expect(error.code).toBe(Code.PermissionDenied);
    expect(refusals.at(-1)?.reason).toBe(error.rawMessage.replace('not_allowed: ', ''));
    return error.rawMessage;
  };
  const producer = await as('plant-a/producer');
  expect((await producer.appendFact(fact('a'))).offset).toBe(1n);
  expect(await denied((await as('enterprise/producer')).appendFact(fact('b')))).toContain(
    'cannot speak for "plant-a"',
  );
  expect(await denied(producer.appendFact(fact('b', 'plant-a', 'lab')))).toContain('not on the list');
  const into = { fromZone: 'enterprise', toZone: 'plant-a' };
  expect(await denied(producer.deliverFacts({ stream: into }))).toContain('only a peer may');
  expect(await denied(producer.fetchFacts({ stream: into, consumerName: 'x' }))).toContain('only a consumer');
  expect(
    await denied((await as('enterprise/consumer')).fetchFacts({ stream: into, consumerName: 'x' })),
  ).toContain('belongs to zone "enterprise"');
  const { results } = await producer.appendFacts({ facts: [fact('c', 'plant-a', 'lab'), fact('d')] });
  expect(results.map(({ result }) => result.case)).toEqual(['refused', 'appended']);
});

test('BND-12: plain HTTP gets no answer on a port with TLS', async () => {
  const { server } = await scene();
  await expect(fetch(`http://localhost:${server.port}/objects/b/k`)).rejects.toThrow('fetch failed');
});

test('BND-12: certificates are replaced without a restart', async () => {
  const { authority, clientWith, rotate } = await scene();
  const next = await TestAuthority.make();
  const old = await authority.issue({ uris: uri('plant-a/producer') });
  const fresh = await next.issue({ uris: uri('plant-a/producer') });
  expect((await clientWith(old).appendFact(fact('a'))).offset).toBe(1n);
  await expect(clientWith(fresh, { ca: next.ca }).appendFact(fact('b'))).rejects.toThrow();
  await rotate(next);
  expect((await clientWith(fresh, { ca: next.ca }).appendFact(fact('b'))).offset).toBe(2n);
  const error = await refusalOf(clientWith(old, { ca: next.ca }).appendFact(fact('c')));
  expect(error.code).toBe(Code.Unauthenticated);
});

/** A request over HTTP/1.1 on a connection of its own, and the session that the server gave. */
async function request(
  port: number,
  options: { readonly ca: string; readonly key?: string; readonly cert?: string; readonly session?: Buffer },
  maxVersion: 'TLSv1.2' | 'TLSv1.3',
) {
  const socket: TLSSocket = connect({
    port,
    host: '127.0.0.1',
    servername: 'localhost',
    maxVersion,
    ...options,
  });
  let session: Buffer | undefined;
  socket.on('session', (given: Buffer) => {
    session = given;
  });
  await once(socket, 'secureConnect');
  const body = '{}';
  socket.write(
    `POST /tallyman.boundary.v1.BoundaryService/AppendFact HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n` +
      `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  await once(socket, 'close');
  return { session, status: Number(/^HTTP\/1.1 (\d+)/.exec(answer)?.[1]), answer };
}

test('BND-12: a TLS session that is resumed without a certificate is refused, and it is noted', async () => {
  const { authority, server, refusals } = await scene();
  const { ca } = authority;
  const producer = await authority.issue({ uris: uri('plant-a/producer') });
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const)
    for (const first of [{ ca, ...producer }, { ca }]) {
      const opened = await request(server.port, first, version);
      // With a certificate the request gets as far as its content, which is empty.
      expect(opened.status).toBe('key' in first ? 400 : 401);
      refusals.length = 0;
      const resumed = await request(
        server.port,
        { ca, ...(opened.session && { session: opened.session }) },
        version,
      );
      expect([version, resumed.status, resumed.answer]).toEqual([
        version,
        401,
        expect.stringContaining('a client certificate is needed'),
      ]);
      expect(refusals).toEqual([expect.objectContaining({ reason: 'a client certificate is needed' })]);
    }
});
