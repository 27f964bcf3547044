import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { until } from '../support/until.ts';
import { registerKind, server } from './support.ts';

test('ENG-11: the API stores what was sent, the handler gets the output of the schema, the lane is named by it', async () => {
  const got: unknown[] = [];
  const weigh = defineKind({
    name: 'weigh',
    public: true,
    schema: z.object({
      shelf: z.string().trim(),
      kg: z.string().transform(Number),
      unit: z.string().default('kg'),
    }),
    lane: { key: ({ shelf }) => shelf },
    handler: (payload) => void got.push(payload),
  });
  const test = await server({ kinds: [weigh] });
  const payload = { shelf: ' A1 ', kg: '2.5' };
  await registerKind(test, 'weigh');
  const first = await test.ask('POST', '/v1/jobs', { kind: 'weigh', payload });
  const batch = await test.ask('POST', '/v1/jobs/batch', { jobs: [{ kind: 'weigh', payload }] });
  const schedule = await test.ask('PUT', '/v1/schedules/hourly', { cron: '@hourly', kind: 'weigh', payload });
  expect([first.status, batch.status, schedule.status]).toEqual([201, 201, 200]);
  for (const id of [first.body.id, batch.body.ids[0]])
    expect((await test.ask('GET', `/v1/jobs/${id}`)).body).toMatchObject({ payload, lane: 'A1' });
  expect(schedule.body.payload).toEqual(payload);

  const bad = { kind: 'weigh', payload: { shelf: 'A1', kg: 2.5 } };
  const refused = [
    await test.ask('POST', '/v1/jobs', bad),
    await test.ask('POST', '/v1/jobs/batch', { jobs: [bad] }),
    await test.ask('PUT', '/v1/schedules/other', { cron: '@hourly', ...bad }),
  ];
  for (const { status, body } of refused) {
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ code: 'VALIDATION_ERROR', message: expect.stringContaining('kg') });
  }

  const worker = test.tallyman.worker({ kinds: [weigh] });
  await worker.start();
  await until('both have run', () => got.length === 2);
  await worker.stop();
  expect(got).toEqual([1, 2].map(() => ({ shelf: 'A1', kg: 2.5, unit: 'kg' })));
});
