/** Everything on the port of a node, as every kind of caller, with bodies that are not what was asked for. */
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { hostname } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { BoundaryService } from '../../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import type { Random } from '../../../support/random.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import { TestAuthority } from './certificates.ts';
import { testNode } from './node.ts';

/** `undefined`: no certificate. */
const callers = [
  undefined,
  'plant-a/producer',
  'plant-a/consumer',
  'lab/peer',
  'enterprise/peer',
  'enterprise/producer',
] as const;

const values: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  2 ** 31,
  '9223372036854775807',
  '-9223372036854775808',
  '99999999999999999999',
  '',
  ' ',
  'plant-a',
  'enterprise',
  'lab',
  'peer:enterprise',
  'node:events',
  'x'.repeat(5000),
  '\u0000',
  'a\u0000b',
  '\ud800',
  '😀'.repeat(300),
  "'; drop table boundary.consumers; --",
  '../../etc/passwd',
  'NaN',
  'AAAA',
  [],
  [[]],
  [{}],
  {},
  { __proto__: { admin: true } },
  { constructor: { prototype: {} } },
];

const streams = [
  { from_zone: 'plant-a', to_zone: 'enterprise' },
  { from_zone: 'enterprise', to_zone: 'plant-a' },
  { from_zone: 'lab', to_zone: 'plant-a' },
  { from_zone: 'plant-a', to_zone: 'plant-a' },
];

type Field = (typeof BoundaryService.methods)[number]['input']['fields'][number];

/** A message that looks right, with something wrong in it here and there. */
function message(random: Random, fields: readonly Field[], depth = 0): unknown {
  const body: Record<string, unknown> = {};
  for (const field of fields) {
    if (random.chance(0.25)) continue;
    body[field.name] = random.chance(0.2) ? random.of(values) : fieldValue(random, field, depth);
  }
  if (random.chance(0.03)) body.unknown_field = 1;
  return body;
}

function fieldValue(random: Random, field: Field, depth: number): unknown {
  if (field.name === 'stream') return random.of(streams);
  const one = (): unknown =>
    field.message && depth < 4
      ? message(random, field.message.fields, depth + 1)
      : scalar(random, field.name);
  return field.fieldKind === 'list' ? Array.from({ length: random.whole(3) }, one) : one();
}

function scalar(random: Random, name: string): unknown {
  if (/zone/.test(name)) return random.of(['plant-a', 'enterprise', 'lab', 'Plant A']);
  // What waits is limited, so that the test is short.
  if (name === 'wait_ms') return random.of([0, 1, -1, -(2 ** 31)]);
  if (/offset|limit|bytes|size|_ms|byte|count|resolved_by/.test(name))
    return random.of([0, 1, 2, -1, '5', 2 ** 31 - 1, 2 ** 53, '9223372036854775807']);
  if (/^(is_|at_end|with_)/.test(name)) return random.chance(0.5);
  if (/json|record/.test(name))
    return random.of(['{}', '1', '{', '{"n":1e999}', '[', '"\\ud800"', '{"a":1,"a":2}']);
  if (name === 'epoch') return random.of(['8c0b5a52-6d0f-4d7b-9d6e-1f0a1c2b3d4e', 'x', '']);
  if (/digest|chain/.test(name)) return random.of(['', `sha256:${'0'.repeat(64)}`, '0'.repeat(64), 'x']);
  if (/signature|data/.test(name)) return random.of(['', 'AAAA', '====']);
  return random.of(['order:1', 'has_state', 'erp', 'm1', 'peer:enterprise', 'files', 'k', '', '\u0000']);
}

/** The envelope of streaming messages: flags and a length in front. */
const enveloped = (text: string, flags = 0, length = Buffer.byteLength(text)): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(length >>> 0, 1);
  return Buffer.concat([head, Buffer.from(text)]);
};

const bytes = (random: Random, most: number): Buffer =>
  Buffer.from(Array.from({ length: random.whole(most) }, () => random.whole(256)));

interface Shot {
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body?: Buffer;
}

function calls(random: Random): Shot[] {
  return BoundaryService.methods.flatMap((rpc) => {
    const path = `/${BoundaryService.typeName}/${rpc.name}`;
    const isStream = rpc.methodKind !== 'unary';
    const json = isStream ? 'application/connect+json' : 'application/json';
    const shot = (body: Buffer, type: string): Shot => ({
      method: 'POST',
      path,
      headers: { 'content-type': type },
      body,
    });
    const told = (body: unknown): Buffer => {
      const text = JSON.stringify(body);
      return isStream ? enveloped(text) : Buffer.from(text);
    };
    return [
      ...Array.from({ length: 30 }, () => shot(told(message(random, rpc.input.fields)), json)),
      ...[random.of(values), random.of(values)].map((body) => shot(told(body), json)),
      ...['{', '', `${'['.repeat(20_000)}`, '{"a":1}}', '\ufeff{}'].map((text) =>
        shot(isStream ? enveloped(text) : Buffer.from(text), json),
      ),
      shot(enveloped('{}', random.whole(256), 0xffffffff), json),
      shot(bytes(random, 200), isStream ? 'application/connect+proto' : 'application/proto'),
      shot(bytes(random, 200), 'application/grpc-web+proto'),
      shot(enveloped('\u0008\u00ff', 0), 'application/grpc-web+proto'),
      shot(Buffer.from('{}'), 'text/plain'),
      { method: 'GET', path, headers: {} },
    ];
  });
}

function objectRequests(random: Random): Shot[] {
  const names = [
    'files/k',
    'files/new',
    'files/%00',
    'files/%ZZ',
    'files/..%2f..%2fetc%2fpasswd',
    '%2e%2e/x',
    `b/${'k'.repeat(3000)}`,
    'files',
  ];
  const headers: readonly Record<string, string>[] = [
    {},
    { range: 'bytes=0-0' },
    { range: 'bytes=99999999999999999999-' },
    { range: 'bytes=-0' },
    { range: 'bytes=5-2' },
    { range: 'lines=1' },
    { 'content-range': 'bytes 7-9/10' },
    { 'content-range': 'bytes 99999999999999999999-/1' },
    { 'content-range': 'nonsense' },
    { 'x-object-digest': 'x' },
    { 'x-object-digest': `sha256:${'0'.repeat(64)}` },
    { 'content-type': 'x'.repeat(3000) },
  ];
  return ['GET', 'HEAD', 'PUT', 'DELETE', 'POST'].flatMap((method) =>
    [...names, random.of(names)].map((name) => ({
      method,
      path: `/objects/${name}`,
      headers: random.of(headers),
      ...(method === 'PUT' && { body: bytes(random, 2000) }),
    })),
  );
}

const literally = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

test('BND-1, BND-12: every call and every object request, as every caller, with bad bodies: refused, never failed, and nothing of the node is told', async () => {
  const random = seededRandom();
  const authority = await TestAuthority.make();
  const logged: object[] = [];
  const parts = await testNode('plant-a');
  Object.assign(parts.node, {
    logger: { ...parts.node.logger, error: (fields: object) => logged.push(fields) },
  });
  const { port } = await parts.serve({
    load: () => authority.server(),
    identities: { trustDomain: 'example' },
  });
  // Something to find, to fetch and to read.
  async function* source() {
    yield Buffer.from('the content');
  }
  const object = await parts.objects.put({ tenantId: 'default', bucket: 'files', key: 'k' }, source());
  for (const [messageId, value] of [
    ['m1', 1],
    ['k', { bucket: 'files', key: 'k', digest: object.digest }],
  ] as const)
    await parts.node.intake.append(
      { tenantId: 'default', authorize: () => {} },
      {
        ...{ messageId, fromZone: 'plant-a', toZone: 'enterprise', producedAt: 1 },
        ...{ subject: 'order:1', predicate: 'is', objectJson: JSON.stringify(value) },
      },
    );
  const rejections: unknown[] = [];
  const onRejection = (reason: unknown): void => void rejections.push(reason);
  process.on('unhandledRejection', onRejection);
  onTestFinished(() => void process.off('unhandledRejection', onRejection));
  const told = new RegExp(
    [
      // A short name may stand in any text.
      ...(hostname().length < 6 ? [] : [String.raw`\b${literally(hostname())}\b`]),
      literally(parts.folder),
      'node_modules',
      'file://',
      String.raw`\bat .+:\d+:\d+`,
      'postgres(ql)?://',
      'ECONN',
      'relation "',
      'syntax error at',
    ].join('|'),
    'i',
  );

  const answerTo = async (agent: Agent, { method, path, headers, body }: Shot): Promise<IncomingMessage> => {
    for (let isAgain = false; ; isAgain = true) {
      const sent = request({ agent, host: 'localhost', port, method, path, headers });
      // The node may answer and close before all of a body is sent.
      sent.on('error', () => {});
      sent.end(body);
      try {
        const [answer] = (await once(sent, 'response')) as [IncomingMessage];
        return answer;
      } catch (error) {
        // The node has closed a connection that was kept alive just when it was used again: Node leaves the retry to the caller.
        if (isAgain || !sent.reusedSocket || (error as { code?: string }).code !== 'ECONNRESET') throw error;
      }
    }
  };
  const send = async (agent: Agent, shot: Shot) => {
    const answer = await answerTo(agent, shot);
    const chunks: Buffer[] = [];
    for await (const chunk of answer) chunks.push(chunk as Buffer);
    const { statusCode: status = 0, rawHeaders, trailers } = answer;
    return {
      status,
      text: [Buffer.concat(chunks).toString('latin1'), rawHeaders, JSON.stringify(trailers)].join('\n'),
    };
  };

  let asked = 0;
  const statuses = new Map<string, Set<number>>();
  for (const who of callers) {
    const issued = who && (await authority.issue({ uris: [`spiffe://example/zone/${who}`] }));
    const agent = new Agent({ keepAlive: true, maxSockets: 8, ca: authority.ca, ...issued });
    onTestFinished(() => agent.destroy());
    const shots = [...calls(random), ...objectRequests(random)];
    await Promise.all(
      shots.map(async (shot) => {
        const { status, text } = await send(agent, shot);
        asked += 1;
        const seen = {
          who,
          status,
          request: `${shot.method} ${shot.path.slice(0, 100)}`,
          body: shot.body?.toString('latin1').slice(0, 300),
          text: text.slice(0, 500),
        };
        // 501: a method that the protocol does not have. Streams and gRPC-Web have their code in the body.
        const isFailure =
          (status >= 500 && status !== 501) ||
          /"code":"(internal|unknown|data_loss)"|grpc-status: ?(2|13|15)\b/i.test(text);
        // Bytes that are no protobuf: the library calls that "internal", and tells nothing else.
        if (isFailure && !/parse( |%20)binary/.test(text)) expect(seen).toBe('no failure of the node');
        if (told.test(text)) expect(seen).toBe('nothing about the machine');
        if (who === undefined && status !== 401) expect(seen).toBe('no answer without a certificate');
        statuses.set(who ?? 'nobody', (statuses.get(who ?? 'nobody') ?? new Set()).add(status));
      }),
    );
  }
  expect(logged).toEqual([]);
  expect(rejections).toEqual([]);
  // It goes on, and the fuzz got past the door: some of what it sent was taken.
  expect([...(statuses.get('plant-a/producer') ?? [])]).toEqual(expect.arrayContaining([200, 400, 403]));
  console.info(`fuzz of the boundary: ${asked} requests`);
}, 120_000);
