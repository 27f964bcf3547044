import { expect, test } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { registerKind, server } from './support.ts';

const internal = [
  'labels.push',
  'labels.drift',
  'webhook.deliver',
  'events.purge',
  'of-a-worker',
  'of-this-process',
];

test('ENG-21: internal kinds are refused, alone, in a batch and as a schedule, for every role; public ones are not', async () => {
  const handler = () => {};
  const kinds = [
    defineKind({ name: 'of-this-process', handler }),
    defineKind({ name: 'open', public: true, handler }),
  ];
  const it = await server({ kinds });
  await registerKind(it, 'noop');
  await registerKind(it, 'of-this-process');
  await it.rows(`select tallyman.register_kind('of-a-worker'), tallyman.register_kind('open')`);
  for (const role of ['producer', 'operator', 'admin'] as const) {
    const ask = await it.as(role, 'acme');
    for (const kind of internal) {
      const refused = { status: 403, body: { error: { code: 'INTERNAL_KIND' } } };
      expect(await ask('POST', '/v1/jobs', { kind }), kind).toMatchObject(refused);
      expect(await ask('POST', '/v1/jobs/batch', { jobs: [{ kind: 'noop' }, { kind }] }), kind).toMatchObject(
        refused,
      );
      if (role !== 'producer')
        expect(await ask('PUT', '/v1/schedules/nightly', { cron: '0 3 * * *', kind }), kind).toMatchObject(
          refused,
        );
    }
  }
  expect(await it.rows('select 1 from tallyman.jobs')).toEqual([]);
  expect(await it.rows(`select 1 from tallyman.schedules where tenant_id = 'acme'`)).toEqual([]);

  const ask = await it.as('operator', 'acme');
  for (const kind of ['noop', 'open']) {
    expect((await ask('POST', '/v1/jobs', { kind })).status).toBe(201);
    expect((await ask('POST', '/v1/jobs/batch', { jobs: [{ kind }, { kind }] })).status).toBe(201);
    expect((await ask('PUT', `/v1/schedules/${kind}`, { cron: '0 3 * * *', kind })).status).toBe(200);
  }
  for (const [method, path, body] of [
    ['POST', '/v1/jobs', { kind: 'sihp' }],
    ['PUT', '/v1/schedules/s', { cron: '0 3 * * *', kind: 'sihp' }],
  ] as const)
    expect(await ask(method, path, body)).toMatchObject({
      status: 422,
      body: { error: { code: 'UNKNOWN_KIND' } },
    });
});
