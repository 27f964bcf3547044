import { afterAll, beforeAll, expect, test } from 'vitest';
import { engineComponent } from '../../src/engine/database/migrate.ts';
import { apps } from '../../src/host/apps.ts';
import { componentsOf } from '../../src/host/components.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { type Cli, cliOn, complaint } from './support.ts';

let fresh: FreshDatabase;
let cli: Cli;

beforeAll(async () => {
  fresh = await freshDatabase([engineComponent, ...componentsOf(apps)]);
  cli = cliOn(fresh.url);
});

afterAll(() => fresh.drop());

test('WH-11: events are emitted once by id, listed by cursor, and their types are explained', async () => {
  const emit = ['events', 'emit', 'pallet.moved', 'pallet:P-1', '--payload', '{"bay": "B7"}', '--id', 'one'];
  expect((await cli(...emit)).stdout).toBe('event one is emitted\n');
  expect((await cli(...emit)).stdout).toBe('there is an event one already; nothing was done\n');
  const page = JSON.parse((await cli('events', 'list', '--aggregate', 'pallet:P-1', '--json')).stdout);
  expect(page.items).toMatchObject([{ event_id: 'one', event_type: 'pallet.moved', payload: { bay: 'B7' } }]);
  const rest = JSON.parse((await cli('events', 'list', '--after', page.next_cursor, '--json')).stdout);
  expect(rest.items).toEqual([]);
  expect((await cli('events', 'list', '--type', 'pallet.*')).stdout).toContain('pallet:P-1');
  expect((await cli('events', 'show', 'one')).stdout).toMatch(/pallet:P-1[\s\S]*{"bay":"B7"}/);
  expect(JSON.parse((await cli('events', 'show', 'one', '--json')).stdout)).toMatchObject({
    event_id: 'one',
  });
  expect(complaint(await cli('events', 'show', 'one', '--tenant', 'other'))).toContain(
    'there is no event one',
  );
  expect((await cli('events', 'types')).stdout).toContain('rfid.movement');
  const { items } = JSON.parse((await cli('events', 'types', '--json')).stdout);
  expect(
    items.find(({ event_type: type }: { event_type: string }) => type === 'job.dead_letter'),
  ).toMatchObject({ event_type: 'job.dead_letter', payload_schema: { type: 'object' } });
  expect(complaint(await cli('events', 'emit', 'job.mine', 'job:1'))).toContain('begin with "job."');
});
