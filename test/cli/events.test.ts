import { afterAll, beforeAll, expect, test } from 'vitest';
import { engineComponent, migrate } from '../../src/engine/database/migrate.ts';
import { apps } from '../../src/host/apps.ts';
import { componentsOf } from '../../src/host/components.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { type Cli, cliOn, complaint } from './support.ts';

let fresh: FreshDatabase;
let cli: Cli;

beforeAll(async () => {
  fresh = await freshDatabase();
  await migrate(fresh.database, { components: [engineComponent, ...componentsOf(apps)] });
  cli = cliOn(fresh.url);
});

afterAll(() => fresh.drop());

test('WH-11: events are emitted once by id, listed by cursor, and their types are explained', async () => {
  const emit = ['events', 'emit', 'pallet.moved', 'pallet:P-1', '--payload', '{"bay": "B7"}', '--id', 'one'];
  expect((await cli(...emit)).stdout).toBe('event one is emitted\n');
  expect((await cli(...emit)).stdout).toBe('there is an event one already; nothing was done\n');
  const page = JSON.parse((await cli('events', 'list', '--aggregate', 'pallet:P-1', '--json')).stdout);
  expect(page.events).toMatchObject([{ id: 'one', type: 'pallet.moved', payload: { bay: 'B7' } }]);
  const rest = JSON.parse((await cli('events', 'list', '--after', page.cursor, '--json')).stdout);
  expect(rest.events).toEqual([]);
  expect((await cli('events', 'list', '--type', 'pallet.*')).stdout).toContain('pallet:P-1');
  expect((await cli('events', 'types')).stdout).toContain('rfid.movement');
  const { items } = JSON.parse((await cli('events', 'types', '--json')).stdout);
  expect(items[0]).toMatchObject({ type: 'job.dead_letter', schema: { type: 'object' } });
  expect(complaint(await cli('events', 'emit', 'job.mine', 'job:1'))).toContain('begin with "job."');
});
