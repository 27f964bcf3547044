import { describe, expect, it } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { EventCatalogue } from '../../src/events/catalogue.ts';
import { engineEventTypes } from '../../src/events/types.ts';
import { until } from '../support/engine.ts';
import { eventScene, moved } from './support.ts';

describe('emitting', () => {
  it('writes the event in the transaction that causes it', async () => {
    const { events, tallyman } = await eventScene();
    await expect(
      tallyman.database.transaction(async (tx) => {
        await events.emit(moved('P-1'), { tx });
        throw new Error('undone');
      }),
    ).rejects.toThrow('undone');
    expect((await events.list()).events).toEqual([]);
    const { eventId, existing } = await events.emit(moved('P-1', { payload: { bay: 'B8' } }));
    expect(existing).toBe(false);
    expect((await events.list()).events).toMatchObject([
      {
        id: eventId,
        type: 'pallet.moved',
        aggregateType: 'pallet',
        aggregateId: 'P-1',
        payload: { bay: 'B8' },
      },
    ]);
    expect(eventId).toMatch(/^evt_\d+$/);
  });

  it('writes thousands in one statement, in their order', async () => {
    const { events } = await eventScene();
    const emitted = await events.emitMany(Array.from({ length: 3000 }, (_, n) => moved(`P-${n}`)));
    expect(new Set(emitted.map(({ eventId }) => eventId)).size).toBe(3000);
    const first = await events.list({}, { limit: 1000 });
    expect(first.events.map(({ aggregateId }) => aggregateId)).toEqual(
      Array.from({ length: 1000 }, (_, n) => `P-${n}`),
    );
    const second = await events.list({}, { after: first.cursor, limit: 1000 });
    expect(second.events[0]?.aggregateId).toBe('P-1000');
  });

  it('does nothing for an id that is there, of that tenant', async () => {
    const { events } = await eventScene();
    expect(await events.emit(moved('P-1', { id: 'order:1' }))).toMatchObject({
      eventId: 'order:1',
      existing: false,
    });
    const again = await events.emitMany([
      moved('P-2', { id: 'order:1' }),
      moved('P-3', { id: 'order:2' }),
      moved('P-4'),
      moved('P-5', { id: 'order:1', tenantId: 'acme' }),
    ]);
    expect(again.map(({ existing }) => existing)).toEqual([true, false, false, false]);
    const { events: found } = await events.list();
    expect(found.map(({ aggregateId }) => aggregateId)).toEqual(['P-1', 'P-3', 'P-4', 'P-5']);
    expect(found.map(({ id }) => id)).toEqual(['order:1', 'order:2', again[2]?.eventId, 'order:1']);
  });

  it.each(['a.b', '', 'x'.repeat(129), 'evt_12'])('refuses "%s" as an id', async (id) => {
    const { events } = await eventScene();
    await expect(events.emit(moved('P-1', { id }))).rejects.toMatchObject({ code: 'BAD_OPTION' });
  });

  it('refuses types of Tallyman itself, and payloads over the limit', async () => {
    const { events, rows } = await eventScene();
    await expect(events.emit(moved('1', { type: 'job.finished' }))).rejects.toMatchObject({
      code: 'BAD_OPTION',
      message: expect.stringContaining('begin with "job."'),
    });
    await expect(events.emit(moved('1', { payload: 'x'.repeat(1_048_576) }))).rejects.toThrow(
      'over the limit',
    );
    expect(await rows('select 1 from tallyman_events.events')).toEqual([]);
  });

  it('can be called from SQL', async () => {
    const { events, rows } = await eventScene();
    const [first] = await rows<{ id: string }>(
      `select tallyman_events.emit('pallet.moved', 'pallet', 'P-1', '{"bay": 1}', event_id => 'one') as id`,
    );
    const [again] = await rows<{ id: string | null }>(
      `select tallyman_events.emit('pallet.moved', 'pallet', 'P-1', event_id => 'one') as id`,
    );
    expect([first?.id, again?.id]).toEqual(['one', null]);
    expect((await events.list()).events).toHaveLength(1);
  });
});

describe('reading', () => {
  it('filters by type, prefix, aggregate and tenant, and moves the cursor past what does not fit', async () => {
    const { events } = await eventScene();
    await events.emitMany([
      moved('P-1'),
      moved('P-2', { type: 'pallet.lost' }),
      moved('T-1', { type: 'truck.left', aggregateType: 'truck' }),
      moved('P-1', { tenantId: 'acme' }),
    ]);
    const found = async (filter: Parameters<typeof events.list>[0]) =>
      (await events.list(filter)).events.map(({ aggregateId, tenantId }) => `${tenantId}/${aggregateId}`);
    expect(await found({ type: 'pallet.lost' })).toEqual(['default/P-2']);
    expect(await found({ type: 'pallet.*', tenantId: 'default' })).toEqual(['default/P-1', 'default/P-2']);
    expect(await found({ aggregateType: 'truck' })).toEqual(['default/T-1']);
    expect(await found({ aggregateType: 'pallet', aggregateId: 'P-1' })).toEqual(['default/P-1', 'acme/P-1']);
    const { cursor } = await events.list({ type: 'nothing.at_all' });
    expect((await events.list({}, { after: cursor })).events).toEqual([]);
  });
});

describe('events of the engine', () => {
  it('WH-11 job.dead_letter and lane.blocked are emitted with the change, as the catalogue says', async () => {
    const { events, tallyman, work } = await eventScene();
    const doomed = defineKind<object>({
      name: 'doomed',
      retry: { maxAttempts: 1 },
      lane: { policy: 'block' },
      handler: () => {
        throw new Error('broken on purpose');
      },
    });
    await work({ kinds: [doomed] });
    await tallyman.enqueue(doomed, {}, { lane: 'door-7', tenantId: 'acme' });
    await until('both are told', async () => (await events.list()).events.length === 2);
    const { events: found } = await events.list();
    const byType = new Map(found.map((event) => [event.type, event]));
    expect([...byType.keys()].sort()).toEqual(['job.dead_letter', 'lane.blocked']);
    for (const { type, aggregateType, schema } of new EventCatalogue(engineEventTypes).types) {
      expect(byType.get(type)?.aggregateType).toBe(aggregateType);
      expect(byType.get(type)?.tenantId).toBe('acme');
      schema.parse(byType.get(type)?.payload);
    }
    expect(byType.get('lane.blocked')?.payload).toMatchObject({ key: 'door-7', queue: 'default' });
    expect(byType.get('job.dead_letter')?.payload).toMatchObject({ error: { message: 'broken on purpose' } });
  });

  it('a job becomes a dead letter also where its event cannot be written', async () => {
    const { rows, tallyman, work } = await eventScene();
    await rows(`alter table tallyman_events.events add constraint none check (false)`);
    const doomed = defineKind<object>({
      name: 'doomed',
      retry: { maxAttempts: 1 },
      handler: () => {
        throw new Error('broken on purpose');
      },
    });
    await work({ kinds: [doomed] });
    await tallyman.enqueue(doomed, {});
    await until(
      'it is a dead letter',
      async () => (await rows('select 1 from tallyman.dead_letters')).length === 1,
    );
  });
});
