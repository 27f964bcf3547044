/** A new app is one folder and one line in the list of apps: this test does what CONTRIBUTING.md says, and nothing else. */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { configurationReference } from '../../src/cli/config-reference.ts';
import { buildProgram } from '../../src/cli/program.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { apps as ours } from '../../src/host/apps.ts';
import { configSchema, loadConfig } from '../../src/host/config.ts';
import { partsOf } from '../../src/host/parts.ts';
import { serve } from '../../src/host/serve.ts';
import { eventually } from '../support/eventually.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { parcelsApp } from './sample/app.ts';

const apps = [...ours, parcelsApp];

/** A receiver of webhooks on this machine. */
async function receiver() {
  const bodies: { event_type: string; payload: unknown }[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      bodies.push(JSON.parse(Buffer.concat(chunks).toString()));
      response.end();
    });
  });
  await new Promise<void>((listening) => void server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void server.close());
  return { bodies, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}

test('an app in the list runs in serve, API, CLI, OpenAPI, metrics, events, webhooks, time line and search', async () => {
  const { url: databaseUrl, drop } = await emptyDatabase();
  const env = {
    DATABASE_URL: databaseUrl,
    TALLYMAN_SECRET_KEY: randomBytes(32).toString('base64'),
    TALLYMAN_PORT: '0',
    TALLYMAN_WEBHOOKS_ALLOW_PRIVATE: 'true',
    TALLYMAN_WEBHOOKS_REQUIRE_HTTPS: 'false',
    TALLYMAN_PARCELS_MAX_GRAMS: '5000',
  };
  const config = loadConfig(apps, { env });
  const serving = await serve({
    apps,
    config,
    parts: partsOf('api,webhooks,parcels', apps),
    kinds: [],
    version: '0.0.0',
    logger: silentLogger,
    migrate: true,
  });
  onTestFinished(async () => {
    await serving.stop();
    await drop();
  });
  expect(serving.lines.join('\n')).toContain('parcels up to 5000 g');
  const ask = async (method: string, path: string, body?: unknown) => {
    const answer = await fetch(`${serving.url}${path}`, {
      method,
      ...(body !== undefined && {
        body: JSON.stringify(body),
        headers: { 'content-type': 'application/json' },
      }),
    });
    const said = await answer.text();
    return {
      status: answer.status,
      body: answer.headers.get('content-type')?.includes('json') ? JSON.parse(said) : said,
    };
  };

  const hook = await receiver();
  expect(await ask('POST', '/v1/webhooks', { url: hook.url, event_types: ['parcel.*'] })).toMatchObject({
    status: 201,
  });
  expect(
    await ask('POST', '/v1/jobs', { kind: 'parcels.record', payload: { code: 'X', grams: 1 } }),
  ).toMatchObject({
    status: 403,
    body: { error: { code: 'INTERNAL_KIND' } },
  });
  expect(
    await ask('POST', '/v1/jobs', { kind: 'parcels.weigh', payload: { code: 'P-1', grams: 700 } }),
  ).toMatchObject({
    status: 201,
  });
  await eventually(async () =>
    expect((await ask('GET', '/v1/parcels/P-1')).body).toEqual({ code: 'P-1', grams: 700 }),
  );
  await eventually(() =>
    expect(hook.bodies).toMatchObject([
      { event_type: 'parcel.weighed', payload: { code: 'P-1', grams: 700 } },
    ]),
  );

  expect((await ask('GET', '/v1/events?type=parcel.weighed')).body.items).toMatchObject([
    { aggregate_id: 'P-1' },
  ]);
  expect(
    (await ask('GET', '/v1/event-types')).body.items.map((item: { event_type: string }) => item.event_type),
  ).toContain('parcel.weighed');
  expect(
    (
      await ask('POST', '/v1/events', {
        event_type: 'parcel.weighed',
        aggregate_type: 'parcel',
        aggregate_id: 'P-2',
      })
    ).status,
  ).toBe(400);
  expect((await ask('GET', '/v1/timeline/parcel:P-1')).body.items).toMatchObject([
    { text: 'weighed: 700 g' },
  ]);
  expect((await ask('GET', '/v1/search?q=P-')).body.items).toEqual([{ type: 'parcel', id: 'P-1' }]);
  expect((await ask('GET', '/v1/openapi.json')).body.paths).toHaveProperty('/v1/parcels/{code}');
  expect((await ask('GET', '/metrics')).body).toMatch(/^tallyman_parcels_total 1$/m);
  expect(configurationReference(configSchema(apps).keys)).toContain(
    '`parcels.maxGrams` | `TALLYMAN_PARCELS_MAX_GRAMS`',
  );

  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  const printed = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  onTestFinished(() => {
    printed.mockRestore();
    vi.unstubAllEnvs();
  });
  await buildProgram(apps).parseAsync(['parcels', 'list', '--json'], { from: 'user' });
  const output = printed.mock.calls.map(([chunk]) => String(chunk)).join('');
  expect(JSON.parse(output)).toEqual({ items: [{ code: 'P-1', grams: 700 }] });
});
