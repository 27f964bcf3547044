import { expect, onTestFinished, test } from 'vitest';
import { FactsFromEvents } from '../../../../src/apps/boundary/bridge/facts-from-events.ts';
import {
  listRefused,
  refusedPage,
  retryRefused,
} from '../../../../src/apps/boundary/bridge/refused-events.ts';
import type { EventRule } from '../../../../src/apps/boundary/domain/event-rules.ts';
import type { StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { emitMany } from '../../../../src/events/emit.ts';
import { cliOn, complaint, scratch } from '../../../cli/support.ts';
import { until } from '../../../support/until.ts';
import { testNode } from '../rpc/node.ts';

const out: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

/** The plant has refused three events: two for their subject, one for its size. */
async function refusing() {
  const node = await testNode('plant-a');
  const { database, store, url } = node;
  const to = node.node.zones.resolve('enterprise', 'zone');
  const partsWith = (rule: Partial<EventRule>) => ({
    database,
    intake: node.node.intake,
    settings: {
      zone: node.node.zone,
      sendsTo: node.node.sendsTo,
      tenantId: 'default',
      eventRules: [{ event: 'rfid.movement', to, predicate: 'moved_to', ...rule }],
    },
  });
  const bridge = new FactsFromEvents(partsWith({ subject: 'basket:{payload.serial}' }), silentLogger, {
    pollMs: 20,
  });
  onTestFinished(() => bridge.stop());
  await bridge.listen();
  const event = { type: 'rfid.movement', aggregateType: 'basket' };
  await emitMany(database, [
    { ...event, id: 'first', aggregateId: 'A', payload: { n: 1 } },
    { ...event, aggregateId: 'A', payload: { n: 2, serial: 'A' } },
    { ...event, id: 'second', aggregateId: 'B', payload: { n: 3 } },
    { ...event, id: 'large', aggregateId: 'B', payload: { n: 4, serial: 'B', text: 'x'.repeat(600_000) } },
    // Of another tenant, with an id that is taken here.
    { ...event, id: 'first', aggregateId: 'X', payload: { n: 9 }, tenantId: 'other' },
  ]);
  bridge.start();
  const refused = () => listRefused(database, 'default', {});
  await until('they are refused', async () => (await refused()).length === 3);
  const numbers = async (): Promise<number[]> => {
    const entries = await store.read(out, { after: 0, limit: 100, maxBytes: 1e9 });
    return entries.map(({ record }) =>
      'object' in record ? (JSON.parse(record.object) as { payload: { n: number } }).payload.n : -1,
    );
  };
  return { database, url, partsWith, refused, numbers };
}

test('BND-16: refused events are facts once the rule fits, each once, though a retry dies between fact and note, and two run at once', async () => {
  const { database, partsWith, refused, numbers } = await refusing();
  const pageOf = (limit: number, cursor?: string) =>
    refusedPage(database, 'default', {}, { limit, ...(cursor !== undefined && { cursor }) });
  const first = await pageOf(2);
  const second = await pageOf(2, first?.nextCursor ?? '');
  expect([...(first?.items ?? []), ...(second?.items ?? [])]).toEqual(await refused());
  expect(second?.nextCursor).toBeNull();
  // By a rule that is as wrong as before nothing is lost.
  const again = await retryRefused(partsWith({ subject: 'basket:{payload.serial}' }), {});
  expect(again).toMatchObject({ appended: 0, refused: [{ event: 'first' }, {}, {}] });
  expect(await refused()).toHaveLength(3);
  await database.query(`
    create function boundary.die() returns trigger language plpgsql as $$ begin raise 'cut by %', current_user; end $$;
    create trigger die before delete on boundary.refused_events for each row execute function boundary.die()`);
  const parts = partsWith({});
  await expect(retryRefused(parts, {})).rejects.toThrow(`cut by ${database.tenantRole}`);
  expect(await numbers()).toEqual([2, 1]);
  expect(await refused()).toHaveLength(3);
  await database.query('drop trigger die on boundary.refused_events');
  await Promise.all([retryRefused(parts, {}), retryRefused(parts, {})]);
  expect(await numbers()).toEqual([2, 1, 3]);
  expect(await refused()).toMatchObject([{ event: 'large', reason: 'too_large' }]);
  expect(await retryRefused(partsWith({ predicate: 'other' }), {})).toMatchObject({
    refused: [{ reason: 'no_rule' }],
  });
  await database.query(`delete from tallyman_events.events where event_key = 'large'`);
  expect(await retryRefused(parts, {})).toMatchObject({ refused: [{ reason: 'event_gone' }] });
});

test('BND-16: tallyman facts refused-events list, retry and drop', async () => {
  const { url, numbers } = await refusing();
  const folder = await scratch();
  const rules = [{ event: 'rfid.movement', to: 'enterprise', predicate: 'moved_to' }];
  const cli = cliOn(url, {
    cwd: folder,
    env: {
      TALLYMAN_BOUNDARY_ZONE: 'plant-a',
      TALLYMAN_BOUNDARY_ZONES: 'enterprise',
      TALLYMAN_BOUNDARY_EVENTS_AS_FACTS: JSON.stringify(rules),
      TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: `${folder}/never-read.key`,
      TALLYMAN_BOUNDARY_OBJECTS_FOLDER: `${folder}/objects`,
    },
  });
  const refused = (...args: string[]) => cli('facts', 'refused-events', ...args);
  const list = async (...args: string[]) =>
    JSON.parse((await refused('list', '--json', ...args)).stdout).items;
  expect(await list('--reason', 'invalid_field', '--to', 'Enterprise')).toMatchObject([
    { event: 'first', type: 'rfid.movement', to_zone: 'enterprise', predicate: 'moved_to' },
    { event: 'second', reason: 'invalid_field', message: expect.stringContaining('payload.serial') },
  ]);
  expect((await refused('list')).stdout).toMatch(/large .*too_large/);
  const { stdout } = await refused('list', '-n', '2');
  expect(await list('--cursor', /--cursor (\S+)\)/.exec(stdout)?.[1] ?? '')).toHaveLength(1);
  expect(complaint(await refused('list', '--cursor', 'nothing'))).toContain('--cursor takes the next_cursor');
  expect(complaint(await refused('retry'))).toContain('name the id of one event, or --all');
  expect((await refused('retry', 'nothing')).code).toBe(3);
  expect((await refused('retry', 'second')).stdout).toBe('1 fact appended\n');
  const all = await refused('retry', '--all');
  expect([all.code, all.stdout]).toEqual([1, '1 fact appended, 1 event refused again\n']);
  expect(all.stderr).toContain('large: too_large: ');
  expect(await numbers()).toEqual([2, 3, 1]);
  expect(JSON.parse((await refused('drop', '--all', '--reason', 'too_large', '--json')).stdout)).toEqual({
    dropped: 1,
  });
  expect((await refused('list')).stdout).toBe('No event was refused.\n');
});
