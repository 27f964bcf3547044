import { expect, onTestFinished, test } from 'vitest';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import { GiveUpError } from '../../../src/engine/errors.ts';
import { until } from '../../support/until.ts';
import { csv, documentUrl, made, type PassportServer, passportServer, productUrl, putSample } from './api.ts';
import { testMeans } from './support.ts';

/** Runs all jobs with a worker whose builds use up their attempts: they end as dead letters. */
async function runWithBrokenBuilds({ tallyman, rows }: PassportServer): Promise<void> {
  const kinds = passportKinds(testMeans()).map((kind) =>
    kind.name === 'passports.build-snapshot'
      ? {
          ...kind,
          handler: () => {
            throw new GiveUpError('STORAGE_AWAY', 'the storage does not answer');
          },
        }
      : kind,
  );
  const worker = tallyman.worker({ kinds, pollIntervalMs: 100 });
  onTestFinished(() => worker.stop());
  await worker.start();
  await until(
    'all jobs have ended',
    async () => (await rows('select 1 from tallyman.jobs limit 1')).length === 0,
  );
  await worker.stop();
}

test('BPC-5: a snapshot whose job became a dead letter is FAILED; redriven, or built again, it goes on where it was to go', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const rules = await putSample(ask);
  const sheet = 'attribute,value,unit\nratedCapacity,151,Ah\n';
  // Read last, it also issues the model's passport: that must not get lost with the build.
  await made(ask('POST', documentUrl('one.csv', 'data_sheet', `&rules=${rules}`), sheet, csv));
  await runWithBrokenBuilds(test);
  const { items } = await made(ask('GET', '/v1/passports/snapshots'));
  const dead = {
    state: 'FAILED',
    error: {
      code: 'STORAGE_AWAY',
      message: expect.stringMatching(/does not answer \(dead letter \d+\)/),
      problems: [],
    },
  };
  expect(items).toMatchObject([dead]);
  const url = `/v1/passports/snapshots/${items[0].id}`;
  expect(await made(ask('GET', url))).toMatchObject(dead);

  // Built again: a new job takes the place of the dead letter, with what is to be issued.
  expect(await made(ask('POST', `${url}/build`))).toMatchObject({ state: 'BUILDING', error: null });
  expect((await made(ask('GET', '/v1/dead-letters'))).items).toEqual([]);
  expect(await ask('POST', `${url}/build`)).toMatchObject({
    status: 409,
    body: { error: { code: 'CONFLICT', message: expect.stringContaining('is being built') } },
  });

  // It dies once more, and is redriven.
  await runWithBrokenBuilds(test);
  expect(await made(ask('GET', url))).toMatchObject(dead);
  const { items: letters } = await made(ask('GET', '/v1/dead-letters'));
  expect(letters).toMatchObject([{ kind: 'passports.build-snapshot' }]);
  expect((await ask('POST', `/v1/dead-letters/${letters[0].id}/redrive`)).status).toBeLessThan(300);
  expect(await made(ask('GET', url))).toMatchObject({ state: 'BUILDING', error: null });
  await test.settle();
  expect(await made(ask('GET', url))).toMatchObject({ state: 'SEALED', error: null, fact_count: 1 });
  // The version that was asked for with the upload.
  const { items: versions } = await made(ask('GET', '/v1/passports/versions'));
  expect(versions).toMatchObject([{ snapshot_id: items[0].id, state: 'ACTIVE', error: null }]);
});

test('BPC-5, BPC-13: a build that cannot go on is FAILED, and its job run again after the cause is gone seals it', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  await putSample(ask);
  for (const ah of ['151', '152'])
    await made(
      ask(
        'POST',
        documentUrl(`${ah}.csv`, 'data_sheet'),
        `attribute,value,unit\nratedCapacity,${ah},Ah\n`,
        csv,
      ),
    );
  await test.settle();
  const { id } = await made(ask('POST', `${productUrl}/snapshots`));
  await test.settle();
  const url = `/v1/passports/snapshots/${id}`;
  expect((await made(ask('GET', url))).state).toBe('FAILED');
  await made(
    ask('POST', documentUrl('152.csv', 'data_sheet'), 'attribute,value,unit\nratedCapacity,151,Ah\n', csv),
  );
  await test.settle();
  const { items } = await made(ask('GET', '/v1/jobs?kind=passports.build-snapshot&status=FAILED'));
  expect((await ask('POST', `/v1/jobs/${items[0].id}/retry`)).status).toBeLessThan(300);
  await test.settle();
  expect(await made(ask('GET', url))).toMatchObject({ state: 'SEALED', error: null });
});
