import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import type { App } from '../../src/host/app.ts';
import { Reply, route } from '../../src/host/route.ts';
import { parcelsApp } from '../host/sample/app.ts';
import { until } from '../support/until.ts';
import { server, type TestServer } from './support.ts';

/** More than sockets and their buffers take. */
const large = 'x'.repeat(16 * 1024 * 1024);

/** With an answer that is larger than what a connection takes unread, and one that comes when the test says so. */
function slowApp() {
  const answer = Promise.withResolvers<string>();
  const read = { method: 'GET', summary: 'a text', roles: ['auditor'], response: z.string() } as const;
  const app: App = {
    ...parcelsApp,
    routes: async () => [
      route({
        ...read,
        url: '/v1/large',
        action: 'large.read',
        produces: 'text/plain',
        handle: async () => new Reply('text/plain', large),
      }),
      route({ ...read, url: '/v1/later', action: 'later.read', handle: () => answer.promise }),
    ],
  };
  return { app, answer };
}

/** Sends a request and reads nothing. */
function ask({ url }: TestServer, path: string, key: string): Socket {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${key}\r\n\r\n`);
  return socket;
}

test('SEC-5: an answer that nobody reads is given up after a while; one that is read slowly, or takes long to make, is not', async () => {
  const { app, answer } = slowApp();
  const scene = await server({ apps: [app] });
  // A server that stops waits for what is under way.
  onTestFinished(() => answer.resolve('never'));
  const { key } = await scene.keys.create({ tenantId: 'default', name: 'k', role: 'auditor' });
  const { server: http } = scene.server.app;
  const connected = async (path: string): Promise<readonly [client: Socket, serving: Socket]> => {
    const serving = new Promise<Socket>((resolve) => http.once('connection', resolve));
    return [ask(scene, path, key), await serving];
  };
  const [unreading, unread] = await connected('/v1/large');
  const [reading, read] = await connected('/v1/large');
  const [waiting, later] = await connected('/v1/later');
  await until('both answers wait', () => unread.writableLength > 0 && read.writableLength > 0);
  // A byte now and then does not keep it.
  unreading.write('\r\n');
  // The clock of the server goes ahead.
  let aheadMs = 0;
  const real = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => real() + aheadMs);
  onTestFinished(() => void vi.restoreAllMocks());
  let length = 0;
  reading.on('data', (chunk) => {
    length += chunk.length;
  });
  await until('the other one is read', () => length > large.length);
  await until(
    'it is given up',
    () => {
      aheadMs += 100_000;
      return unread.destroyed;
    },
    20_000,
  );
  expect([read.destroyed, later.destroyed]).toEqual([false, false]);
  let heard = '';
  waiting.on('data', (chunk) => {
    heard += chunk;
  });
  answer.resolve('at last');
  await until('the long one is answered', () => heard.includes('at last'));
});

test('SEC-5: there are so many connections and no more; one that ends makes room', async () => {
  const scene = await server({ config: { 'server.maxConnections': 2 } });
  const opened = async () => {
    const socket = connect(Number(new URL(scene.url).port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    socket.resume();
    await new Promise<void>((resolve) => socket.once('connect', () => resolve()));
    return socket;
  };
  const first = await opened();
  await opened();
  const connections = () =>
    new Promise<number>((resolve) =>
      scene.server.app.server.getConnections((_error, count) => resolve(count)),
    );
  await until('both are there', async () => (await connections()) === 2);
  const third = await opened();
  await until('it is closed', () => third.destroyed, 20_000);
  first.destroy();
  await until('there is room', async () => (await connections()) === 1);
  expect((await scene.ask('GET', '/v1/health/live')).status).toBe(200);
});

test('SEC-5: strangers may ask for the documentation as often as for anything else', async () => {
  const scene = await server({ config: { 'server.ratePerSecond': 0.001, 'server.rateBurst': 6 } });
  const paths = [
    '/v1/openapi.json',
    '/v1/docs/json',
    '/v1/docs/yaml',
    '/v1/docs/static/swagger-ui.css',
    '/v1/docs/static/swagger-initializer.js',
    '/v1/docs/',
  ];
  const statuses = async (headers?: Record<string, string>): Promise<number[]> => {
    const found: number[] = [];
    for (const path of paths) found.push((await scene.ask('GET', path, undefined, headers)).status);
    return found;
  };
  expect(await statuses()).toEqual(paths.map(() => 200));
  expect(await statuses()).toEqual(paths.map(() => 429));
  // Nothing that a header says makes it another caller.
  expect(await statuses({ authorization: 'Bearer tlm_x' })).toEqual(paths.map(() => 429));
  expect((await scene.ask('GET', '/v1/docs/json')).headers.get('retry-after')).toMatch(/^\d+$/);
});
