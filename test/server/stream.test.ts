import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { Database } from '../../src/engine/database/database.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { LiveStream } from '../../src/server/stream.ts';
import { until } from '../support/until.ts';
import { server, type TestServer } from './support.ts';

const blob = 'x'.repeat(50_000);

/** Events of 5 MB: more than the buffers of a connection take. */
async function emitMuch(scene: TestServer): Promise<void> {
  const ask = await scene.as('producer');
  for (let n = 0; n < 100; n += 1)
    await ask('POST', '/v1/events', {
      event_type: 'pallet.moved',
      aggregate_type: 'pallet',
      aggregate_id: `P-${n}`,
      payload: { blob },
    });
}

/** A client of the stream that asks for everything and reads nothing. */
async function deafReader(url: string, key: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  socket.pause();
  onTestFinished(() => void socket.destroy());
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  socket.write(
    `GET /v1/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\nlast-event-id: 0\r\n\r\n`,
  );
  return socket;
}

/** The server's ends of its open connections, by the port of the other end. */
function connectionsOf(scene: TestServer): ReadonlyMap<number | undefined, Socket> {
  const open = new Map<number | undefined, Socket>();
  scene.server.app.server.on('connection', (connection: Socket) => {
    const { remotePort } = connection;
    open.set(remotePort, connection);
    connection.once('close', () => open.delete(remotePort));
  });
  return open;
}

test('SEC-7: a reader that reads nothing is disconnected when its key expires, and the server lives on', async () => {
  const scene = await server();
  const connections = connectionsOf(scene);
  const uncaught: unknown[] = [];
  const note = (error: unknown) => uncaught.push(error);
  process.on('uncaughtExceptionMonitor', note);
  onTestFinished(() => void process.off('uncaughtExceptionMonitor', note));
  await emitMuch(scene);
  const { key, apiKey } = await scene.keys.create({ tenantId: 'default', name: 'k', role: 'auditor' });
  const socket = await deafReader(scene.url, key);
  const { localPort } = socket;
  await until('its buffers are full', () => (connections.get(localPort)?.writableLength ?? 0) > 60_000);
  await scene.rows('update tallyman_server.api_keys set expires_at = now() where id = $1', [apiKey.id]);
  await until('its connection is closed', () => !connections.has(localPort), 20_000);
  const ask = await scene.as('producer');
  for (let n = 0; n < 3; n += 1)
    await ask('POST', '/v1/events', { event_type: 'a.b', aggregate_type: 'a', aggregate_id: `${n}` });
  expect(uncaught).toEqual([]);
});

/** A live stream on a database that counts for ever, and knows no events. */
async function slowStream(stillValid: (ids: readonly string[]) => Promise<ReadonlySet<string>>) {
  const database = {
    logger: silentLogger,
    query: async (text: string) => {
      if (/tenant_counts/.test(text)) return new Promise(() => {});
      return { rows: [{ at: '0', end: '0' }] };
    },
    dedicated: () => Promise.reject(new Error('no connection')),
  } as unknown as Database;
  const stream = new LiveStream(database, stillValid);
  const http = createServer((_, response) => stream.add({ tenantId: 'a', keyId: 'k' }, response));
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    await stream.stop();
    http.closeAllConnections();
    http.close();
  });
  return { stream, url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/` };
}

test('SEC-7: the stream of a revoked key ends while the counts are still being looked up', async () => {
  let isRevoked = false;
  const { stream, url } = await slowStream(async (ids) => new Set(isRevoked ? [] : ids));
  const response = await fetch(url);
  const ended = response.text();
  await until('it is open', () => stream.clients === 1);
  isRevoked = true;
  await until('it has ended', () => stream.clients === 0, 15_000);
  await ended;
});
