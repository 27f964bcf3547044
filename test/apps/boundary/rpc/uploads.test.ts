/** Uploads by plain PUT that take long, or break off before the node reads them. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { Server } from 'node:http';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect as connectPlain, type Socket } from 'node:net';
import { connect } from 'node:tls';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { FileBlobs } from '../../../../src/apps/boundary/objects/files.ts';
import { Objects } from '../../../../src/apps/boundary/objects/objects.ts';
import { type BoundaryServer, startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import { cutAfter, digestOf } from '../objects/bytes.ts';
import { TestAuthority } from './certificates.ts';
import { testNode } from './node.ts';

const host = '127.0.0.1';

/** The server of Node that listens meanwhile. */
async function serverOf(start: () => Promise<BoundaryServer>) {
  let listening: Server | undefined;
  const note = (message: unknown): void => {
    listening = (message as { readonly server: Server }).server;
  };
  const channel = 'tracing:net.server.listen:asyncStart';
  subscribe(channel, note);
  const server = await start().finally(() => unsubscribe(channel, note));
  onTestFinished(() => server.stop());
  return { port: server.port, listening };
}

async function withTls() {
  const authority = await TestAuthority.make();
  const producer = await authority.issue({ uris: ['spiffe://example/zone/plant-a/producer'] });
  return {
    tls: { load: () => authority.server(), identities: { trustDomain: 'example' } },
    client: { ...producer, ca: authority.ca, host, servername: 'localhost' },
  };
}

/** What comes until the other side ends the connection. */
async function answerOn(socket: Socket): Promise<string> {
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  await once(socket, 'close');
  return answer;
}

for (const isSecure of [true, false])
  test(`BND-5: an upload over HTTP/1.1 may take any time, its headers may not, ${isSecure ? 'with' : 'without'} TLS`, async () => {
    const { node } = await testNode();
    const { tls, client } = await withTls();
    const options = { node, host, port: 0, ...(isSecure && { tls }) };
    const { listening } = await serverOf(() => startBoundaryServer(options));
    expect(listening).toMatchObject({ requestTimeout: 0, headersTimeout: 60_000 });

    const { port } = await serverOf(() => startBoundaryServer({ ...options, headersTimeoutMs: 200 }));
    const open = async (): Promise<Socket> => {
      const socket = isSecure ? connect({ ...client, port }) : connectPlain({ host, port });
      await once(socket, isSecure ? 'secureConnect' : 'connect');
      return socket;
    };
    const put = (key: string): string => `PUT /objects/files/${key} HTTP/1.1\r\nhost: localhost\r\n`;
    const upload = await open();
    upload.write(`${put('slow')}connection: close\r\ncontent-length: 6\r\n\r\nabc`);
    // It began later, and is cut off before the upload goes on.
    const unfinished = await open();
    unfinished.write(put('never'));
    expect(await answerOn(unfinished)).toContain('408 Request Timeout');
    upload.write('def');
    expect(await answerOn(upload)).toContain(digestOf(Buffer.from('abcdef')));
  });

/** Reads what comes when it is told to, as if the storage were slow. */
class LateObjects extends Objects {
  readonly asked = Promise.withResolvers<void>();
  readonly gate = Promise.withResolvers<void>();
  readonly ended = Promise.withResolvers<void>();

  override async put(...upload: Parameters<Objects['put']>) {
    this.asked.resolve();
    await this.gate.promise;
    return super.put(...upload).finally(this.ended.resolve);
  }
}

test('BND-5: an upload over HTTP/2 that is reset before it is read is not taken for a whole one', async () => {
  const { node, database, folder } = await testNode();
  const { tls, client } = await withTls();
  const whole = Buffer.alloc(300, 'x');
  const rest = {
    'content-range': 'bytes 100-299/300',
    'content-length': '200',
    'x-object-digest': digestOf(whole),
  };
  for (const { key, kept, headers } of [
    { key: 'fresh', kept: 0, headers: {} },
    { key: 'resumed', kept: 100, headers: rest },
  ]) {
    const objects = new LateObjects({ database, blobs: await FileBlobs.open(folder), maxBytes: 1000 });
    const name = { tenantId: 'default', bucket: 'files', key };
    if (kept > 0) await expect(node.objects.put(name, cutAfter(whole, kept))).rejects.toThrow('was cut');
    const { port } = await serverOf(() =>
      startBoundaryServer({ node: { ...node, objects }, host, port: 0, tls }),
    );
    const session = connectHttp2(`https://localhost:${port}`, client).on('error', () => {});
    onTestFinished(() => session.destroy());
    const upload = session.request({ ':method': 'PUT', ':path': `/objects/files/${key}`, ...headers });
    upload.on('error', () => {});
    await objects.asked.promise;
    upload.close(constants.NGHTTP2_CANCEL);
    await once(upload, 'close');
    // The answers come after the node has read the reset, and has closed its side.
    for (let n = 0; n < 2; n += 1)
      await promisify(session.ping.bind(session) as (done: () => void) => boolean)();
    objects.gate.resolve();
    await objects.ended.promise;
    expect([key, await objects.find(name), await objects.resumable(name)]).toEqual([key, undefined, kept]);
  }
});
