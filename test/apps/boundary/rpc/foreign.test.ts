import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { findProgram } from '../../../support/services/service.ts';
import { TestAuthority } from './certificates.ts';
import { testNode } from './node.ts';

// Clients that are not ours.

const root = join(import.meta.dirname, '../../../..');
const service = 'tallyman.boundary.v1.BoundaryService';
const python = '/usr/bin/python3';

/** Whatever proxy the machine has is not for nodes on it. */
const direct = { no_proxy: 'localhost,127.0.0.1', NO_PROXY: 'localhost,127.0.0.1' };
const run = async (program: string, args: readonly string[], env: Record<string, string> = {}, cwd = root) =>
  (await promisify(execFile)(program, args, { cwd, env: { ...process.env, ...direct, ...env } })).stdout;

/** A node with TLS, and the certificates of a producer and a consumer as files. */
async function withCertificates() {
  const authority = await TestAuthority.make();
  const scene = await testNode('plant-a');
  const { port } = await scene.serve({
    load: () => authority.server(),
    identities: { trustDomain: 'example' },
  });
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-foreign-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'ca.pem'), authority.ca);
  for (const role of ['producer', 'consumer']) {
    const { key, cert } = await authority.issue({ uris: [`spiffe://example/zone/plant-a/${role}`] });
    await writeFile(join(folder, `${role}.key`), key);
    await writeFile(join(folder, `${role}.pem`), cert);
  }
  return { ...scene, port, folder };
}

const fact = (messageId: string) => ({
  envelope: {
    message_id: messageId,
    from_zone: 'Plant A',
    to_zone: 'Enterprise',
    produced_at_unix_ms: 1772755200000,
    labels: { line: '4' },
  },
  fact: {
    subject: 'work_order:WO-2026-001',
    predicate: 'has_state',
    object_json: JSON.stringify({ state: 'done', client: messageId }),
  },
});
const stream = { from_zone: 'plant-a', to_zone: 'enterprise' };

test('BND-1: curl appends, fetches and confirms with plain JSON, with and without certificates', async () => {
  const curl = findProgram('curl', 'curl');
  const plain = await testNode('plant-a');
  const { port } = await plain.serve();
  const secured = await withCertificates();
  const certificate = (role: string) =>
    ['cacert ca.pem', `cert ${role}.pem`, `key ${role}.key`].flatMap((each) => {
      const [option = '', file = ''] = each.split(' ');
      return [`--${option}`, join(secured.folder, file)];
    });
  for (const [base, producer, consumer] of [
    [`http://127.0.0.1:${port}`, [], []],
    [`https://localhost:${secured.port}`, certificate('producer'), certificate('consumer')],
  ] as const) {
    const call = async (options: readonly string[], method: string, body: object) =>
      JSON.parse(
        await run(curl, [
          ...['--silent', '--show-error', '--fail-with-body', '--header', 'content-type: application/json'],
          ...options,
          ...['--data', JSON.stringify(body), `${base}/${service}/${method}`],
        ]),
      );
    expect(await call(producer, 'AppendFact', fact('curl'))).toEqual({ offset: '1', existing: false });
    expect(await call(producer, 'AppendFact', fact('curl'))).toEqual({ offset: '1', existing: true });
    const fetched = await call(consumer, 'FetchFacts', { stream, consumer_name: 'erp' });
    expect(fetched.facts).toMatchObject([{ offset: '1', fact: { envelope: { message_id: 'curl' } } }]);
    expect(await call(consumer, 'ConfirmReceipt', { stream, consumer_name: 'erp', offset: 1 })).toEqual({
      cursor_advanced_to: '1',
    });
  }
});

test('BND-1: a Python client that is generated from the proto file appends, fetches and confirms over gRPC', async () => {
  await run(python, ['-c', 'import grpc, google.protobuf']).catch(() => {
    throw new Error("Debian's Python has no gRPC: apt-get install python3-grpcio python3-protobuf");
  });
  const plugin = findProgram('grpc_python_plugin', 'protobuf-compiler-grpc');
  const { port, folder, store } = await withCertificates();
  await run(findProgram('protoc', 'protobuf-compiler'), [
    ...['-Iproto', `--python_out=${folder}`, `--grpc_out=${folder}`, `--plugin=protoc-gen-grpc=${plugin}`],
    'tallyman/boundary/v1/boundary.proto',
  ]);
  const answer = JSON.parse(
    await run(python, [join(import.meta.dirname, 'foreign_client.py'), `localhost:${port}`, folder], {
      PYTHONPATH: folder,
    }),
  );
  expect(answer).toEqual({
    offsets: [1, 1, 1],
    existing: [false, true, true],
    conflict: ['ALREADY_EXISTS', 'conflicting_duplicate'],
    object: { size: 300_000, equal: true },
    batch: ['appended', 'refused', 'appended'],
    found: 1,
    fetched: ['python', 'python with file', 'python last'],
    confirmed: 3,
  });
  const entries = await store.read(
    { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' },
    { after: 0, limit: 10, maxBytes: 100_000 },
  );
  expect(entries.map(({ key }) => key)).toEqual(['python', 'python with file', 'python last']);
}, 240_000);

test('BND-1: buf curl speaks gRPC, gRPC-Web and Connect to it', async () => {
  const bin = join(root, 'node_modules/.bin');
  expect(existsSync(join(bin, 'buf'))).toBe(true);
  const { port, folder } = await withCertificates();
  const buf = async (protocol: string, role: string, method: string, body: object) =>
    JSON.parse(
      await run(
        join(bin, 'buf'),
        [
          ...['curl', '--schema', '.', '--protocol', protocol],
          ...['--cacert', join(folder, 'ca.pem'), '--cert', join(folder, `${role}.pem`)],
          ...['--key', join(folder, `${role}.key`), '--data', JSON.stringify(body)],
          `https://localhost:${port}/${service}/${method}`,
        ],
        { PATH: `${bin}${delimiter}${process.env.PATH}` },
        join(root, 'proto'),
      ),
    );
  for (const [i, protocol] of ['grpc', 'grpcweb', 'connect'].entries())
    expect(await buf(protocol, 'producer', 'AppendFact', fact(protocol))).toEqual({ offset: String(i + 1) });
  const { facts } = await buf('grpc', 'consumer', 'FetchFacts', { stream, consumer_name: 'erp' });
  expect(facts).toMatchObject(
    ['grpc', 'grpcweb', 'connect'].map((messageId, i) => ({
      offset: String(i + 1),
      fact: { envelope: { messageId } },
    })),
  );
}, 240_000);
