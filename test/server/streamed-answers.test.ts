import { get, type IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import type { App } from '../../src/host/app.ts';
import { route } from '../../src/host/route.ts';
import { parcelsApp } from '../host/sample/app.ts';
import { until } from '../support/until.ts';
import { server, type TestServer } from './support.ts';

/** An export that never ends, and how many of its kind are being read. */
function endlessExport() {
  const state = { reading: 0, pages: 0 };
  async function* pages() {
    state.reading += 1;
    try {
      for (;;) {
        state.pages += 1;
        yield 'x'.repeat(1_000);
        await sleep(5);
      }
    } finally {
      state.reading -= 1;
    }
  }
  const app: App = {
    ...parcelsApp,
    routes: async () => [
      route({
        method: 'GET',
        url: '/v1/endless',
        action: 'endless.read',
        summary: 'All there is',
        roles: ['auditor'],
        response: z.string(),
        produces: 'text/plain',
        handle: async () => Readable.from(pages()),
      }),
    ],
  };
  return { state, app };
}

async function open(scene: TestServer, key: string): Promise<IncomingMessage> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const request = get(`${scene.url}/v1/endless`, { headers: { authorization: `Bearer ${key}` } }, resolve);
    request.on('error', reject);
    onTestFinished(() => void request.destroy());
  });
  response.on('error', () => {});
  response.resume();
  return response;
}

test('SEC-5: a tenant is sent so many streamed answers at once and no more; one that has ended makes room', async () => {
  const { app, state } = endlessExport();
  const scene = await server({ apps: [app] });
  await scene.as('auditor', 'acme');
  const keyOf = async (tenantId: string) =>
    (await scene.keys.create({ tenantId, name: 'k', role: 'auditor' })).key;
  const [acme, other] = [await keyOf('acme'), await keyOf('default')];
  const [first, second] = [await open(scene, acme), await open(scene, acme)];
  expect([first.statusCode, second.statusCode]).toEqual([200, 200]);
  const refused = await open(scene, acme);
  expect([refused.statusCode, refused.headers['retry-after']]).toEqual([429, '1']);
  expect((await open(scene, other)).statusCode).toBe(200);
  await until('the refused one is not read', () => state.reading === 3);
  first.destroy();
  await until('there is room', async () => (await open(scene, acme)).statusCode === 200);
});

test('SEC-7: a streamed answer is cut off when its key is revoked, and nothing more is read for it', async () => {
  const { app, state } = endlessExport();
  const scene = await server({ apps: [app] });
  const { key, apiKey } = await scene.keys.create({ tenantId: 'default', name: 'k', role: 'auditor' });
  const response = await open(scene, key);
  const closed = new Promise<void>((resolve) => response.once('close', resolve));
  await scene.keys.revoke(apiKey.id);
  await closed;
  expect(response.complete).toBe(false);
  await until('it is read no more', () => state.reading === 0);
});

test('SEC-5: after HEAD nothing is read for an answer that nobody gets', async () => {
  const { app, state } = endlessExport();
  const scene = await server({ apps: [app] });
  const ask = await scene.as('auditor');
  expect((await ask('HEAD', '/v1/endless')).status).toBe(200);
  await until('it is read no more', () => state.reading === 0, 10_000);
});
