import { expect, onTestFinished, test } from 'vitest';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { apps } from '../../src/host/apps.ts';
import { componentsOf } from '../../src/host/components.ts';
import { emptyDatabase } from '../support/postgres.ts';

test('the tables of every part can be made in a database that is not in UTF-8', async () => {
  const { url, drop } = await emptyDatabase('LATIN1');
  const tallyman = await Tallyman.open({ databaseUrl: url, migrate: true, components: componentsOf(apps) });
  onTestFinished(async () => {
    await tallyman.close();
    await drop();
  });
  expect((await tallyman.jobs.list()).items).toEqual([]);
});
