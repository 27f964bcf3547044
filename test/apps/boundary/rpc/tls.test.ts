import { once } from 'node:events';
import { connect as connectPlain } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport } from '@connectrpc/connect-node';
import { expect, test } from 'vitest';
import { BoundaryService } from '../../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import { until } from '../../../support/until.ts';
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

/** What a program gets that sends this to the port, without TLS. */
async function answerTo(port: number, text: string): Promise<string> {
  const socket = connectPlain(port, '127.0.0.1').on('error', () => {});
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.write(text);
  await closed;
  return answer;
}

test('BND-12: plain HTTP on a port with TLS is refused with a reason, and it is noted', async () => {
  const { server, refusals } = await scene();
  const answer = await fetch(`http://localhost:${server.port}/objects/b/k`);
  expect([answer.status, await answer.json()]).toEqual([
    400,
    {
      code: 'invalid_argument',
      reason: 'plain_http',
      message: expect.stringContaining('use https:// with a client certificate'),
    },
  ]);
  for (const start of ['POST /x HTTP/1.1', 'DELETE /x HTTP/1.1', 'CONNECT x:1 HTTP/1.1'])
    expect(await answerTo(server.port, `${start}\r\nhost: x\r\n\r\n`)).toContain('plain HTTP is refused');
  expect(refusals).toEqual(
    Array(4).fill({
      name: expect.stringMatching(/127\.0\.0\.1|::1/),
      address: expect.stringMatching(/127\.0\.0\.1|::1/),
      action: 'connect',
      code: 'plain_http',
      reason: expect.stringContaining('plain HTTP is refused'),
    }),
  );
});

test('BND-12: what is no TLS, or a TLS that is too old, is noted; who only knocks is not', async () => {
  const { authority, server, refusals } = await scene();
  const knocking = connectPlain(server.port, '127.0.0.1');
  await once(knocking, 'connect');
  knocking.destroy();
  // A caller that does not know our authority refuses us, not we it.
  const distrusting = connect({ port: server.port, host: '127.0.0.1', servername: 'localhost' });
  await expect(once(distrusting, 'secureConnect')).rejects.toThrow();
  for (const text of ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', '\0'.repeat(100), '\x16\x03\x01\0\x05hello'])
    await answerTo(server.port, text);
  const old = connect({
    port: server.port,
    host: '127.0.0.1',
    servername: 'localhost',
    ca: authority.ca,
    minVersion: 'TLSv1',
    maxVersion: 'TLSv1.1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  });
  await expect(once(old, 'secureConnect')).rejects.toThrow();
  await until('all of them were seen', () => refusals.length === 4);
  expect(refusals.map(({ code }) => code)).toEqual(Array(4).fill('handshake_failed'));
  expect(refusals.at(-1)?.reason).toContain('unsupported protocol');
});

test('BND-12: everybody who must be refused is refused with a reason and one event', async () => {
  const { authority, server, refusals, clientWith } = await scene();
  const other = await TestAuthority.make();
  const issued = (path: string, from = authority, notAfter?: Date) =>
    from.issue({ uris: uri(path), ...(notAfter && { notAfter }) });
  const told = async (call: Promise<unknown>): Promise<string> => (await refusalOf(call)).rawMessage;
  const append = async (by: Issued): Promise<string> => told(clientWith(by).appendFact(fact('a')));
  const producer = await issued('plant-a/producer');

  const cases: readonly (readonly [string, () => Promise<string>, string, string])[] = [
    [
      'wrong CA',
      async () => append(await issued('plant-a/producer', other)),
      'certificate_refused',
      'is not accepted',
    ],
    [
      'expired certificate',
      async () => append(await issued('plant-a/producer', authority, new Date(Date.now() - 3_600_000))),
      'certificate_refused',
      'EXPIRED',
    ],
    [
      'right certificate with another from_zone',
      () => told(clientWith(producer).appendFact(fact('a', 'enterprise', 'plant-a'))),
      'not_allowed',
      'cannot speak for "enterprise"',
    ],
    [
      'producer certificate that tries to deliver',
      () =>
        told(clientWith(producer).deliverFacts({ stream: { fromZone: 'enterprise', toZone: 'plant-a' } })),
      'not_allowed',
      'only a peer may',
    ],
    [
      'plain HTTP',
      async () => (await fetch(`http://localhost:${server.port}/objects/b/k`)).text(),
      'plain_http',
      'plain HTTP is refused',
    ],
    [
      'resumed session without a certificate',
      async () => {
        const { ca } = authority;
        const { session } = await request(server.port, { ca, ...producer }, 'TLSv1.2');
        return (await request(server.port, { ca, ...(session && { session }) }, 'TLSv1.2')).answer;
      },
      'no_certificate',
      'a client certificate is needed',
    ],
  ];
  for (const [name, ask, code, reason] of cases) {
    refusals.length = 0;
    const answer = await ask();
    expect([name, answer]).toEqual([name, expect.stringContaining(reason)]);
    expect([name, refusals]).toEqual([
      name,
      [expect.objectContaining({ code, reason: expect.stringContaining(reason) })],
    ]);
  }
  // None of it left a trace in the log.
  expect((await clientWith(producer).appendFact(fact('first'))).offset).toBe(1n);
});
