/** Uploads by plain PUT that take long. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { Server } from 'node:http';
import { connect as connectPlain, type Socket } from 'node:net';
import { connect } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { type BoundaryServer, startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import { digestOf } from '../objects/bytes.ts';
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
