/** Events as facts and back on one node, each with a real database. */
import { describe, expect, onTestFinished, test } from 'vitest';
import { EventsFromFacts, eventsConsumer } from '../../../../src/apps/boundary/bridge/events-from-facts.ts';
import { FactsFromEvents } from '../../../../src/apps/boundary/bridge/facts-from-events.ts';
import { refusedEvents } from '../../../../src/apps/boundary/bridge/refused-events.ts';
import type { EventRule } from '../../../../src/apps/boundary/domain/event-rules.ts';
import { trimConfirmed } from '../../../../src/apps/boundary/retention.ts';
import type { StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { emitMany, type NewEvent } from '../../../../src/events/emit.ts';
import { purgeEvents } from '../../../../src/events/purge.ts';
import { until } from '../../../support/until.ts';
import { type TestNodeOptions, testNode } from '../rpc/node.ts';
import { codeOf } from '../store/facts.ts';
import { twoZones } from '../two-zones.ts';

const out: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

const moved = (aggregateId: string, n: number, more: Partial<NewEvent> = {}): NewEvent => ({
  type: 'rfid.movement',
  aggregateType: 'basket',
  aggregateId,
  payload: { n },
  ...more,
});

/** `A 1` for each fact, in the order of the stream. */
async function factsOf({ store }: Pick<Awaited<ReturnType<typeof testNode>>, 'store'>, stream = out) {
  const entries = await store.read(stream, { after: 0, limit: 100_000, maxBytes: 1e9 });
  return entries.map(({ record }) => {
    if (!('subject' in record)) return 'gap';
    const { payload } = JSON.parse(record.object) as { payload: { n: number } };
    return `${record.subject.replace('basket:', '')} ${payload.n}`;
  });
}

async function plantNode(options: TestNodeOptions = {}, more: readonly Partial<EventRule>[] = [{}]) {
  const node = await testNode('plant-a', options);
  const { database } = node;
  const errors: object[] = [];
  const warnings: string[] = [];
  const logger = {
    ...silentLogger,
    error: (fields: object) => void errors.push(fields),
    warn: (_: object, message: string) => void warnings.push(message),
  };
  const to = node.node.zones.resolve('enterprise', 'zone');
  const settings = {
    zone: node.node.zone,
    sendsTo: [...node.node.sendsTo, node.node.zones.resolve('lab', 'zone')],
    tenantId: 'default',
    eventRules: more.map((each) => ({ event: 'rfid.movement', to, predicate: 'moved_to', ...each })),
  };
  const bridge = () => {
    const made = new FactsFromEvents({ settings, database, intake: node.node.intake }, logger, {
      pollMs: 20,
    });
    onTestFinished(() => made.stop());
    return made;
  };
  const emit = (events: readonly NewEvent[]) => emitMany(database, events);
  return { ...node, bridge, emit, errors, warnings };
}

const isPast = async (
  { database }: Awaited<ReturnType<typeof plantNode>>,
  listener = 'boundary:enterprise',
) => {
  const { rows } = await database.query<{ news: boolean }>('select tallyman_events.has_news($1) as news', [
    listener,
  ]);
  return rows[0]?.news === false;
};

describe('events as facts', () => {
  test('BND-16: the tenant’s events that a rule names, from the first start on, once with several processes at work', async () => {
    const plant = await plantNode();
    await plant.emit([moved('A', 0)]);
    await plant.bridge().listen();
    const events = Array.from({ length: 2500 }, (_, i) => moved(`B${i % 7}`, i));
    await plant.emit([
      moved('A', 1),
      moved('A', 2, { type: 'rfid.movement.corrected' }),
      moved('A', 3, { tenantId: 'other' }),
      ...events,
    ]);
    // Nothing is purged that is not a fact yet.
    expect(await purgeEvents(plant.database, 0)).toBe(1);
    const bridges = [plant.bridge(), plant.bridge()];
    for (const each of bridges) {
      await each.listen();
      each.start();
    }
    await until('all are facts', () => isPast(plant));
    expect(await factsOf(plant)).toEqual([
      'A 1',
      ...events.map(({ aggregateId, payload }) => `${aggregateId} ${(payload as { n: number }).n}`),
    ]);
    expect(plant.errors).toEqual([]);
    expect(await purgeEvents(plant.database, 0)).toBe(2503);
  });

  test('BND-16: an event that can never be a fact is noted and told once, and the others go on', async () => {
    const plant = await plantNode();
    const bridge = plant.bridge();
    await bridge.listen();
    await plant.emit([
      moved('A', 1),
      moved('A', 2, { id: 'large', payload: { n: 2, text: 'x'.repeat(600_000) } }),
      moved('A', 3, { id: 'bad-subject', aggregateType: '7' }),
      // The record of it is too large, though the object is not: quotes are escaped.
      moved('A', 4, { id: 'escaped', payload: { n: 4, text: '"'.repeat(262_040) } }),
      moved('A', 5),
    ]);
    bridge.start();
    await until('the rest is there', () => isPast(plant));
    expect(await factsOf(plant)).toEqual(['A 1', 'A 5']);
    const { rows } = await plant.database.query(
      'select event_id as id, event_type as type, reason from boundary.refused_events order by event_id',
    );
    expect(rows).toEqual([
      { id: 'bad-subject', type: 'rfid.movement', reason: 'invalid_field' },
      { id: 'escaped', type: 'rfid.movement', reason: 'too_large' },
      { id: 'large', type: 'rfid.movement', reason: 'too_large' },
    ]);
    expect(await refusedEvents(plant.database, 'default')).toEqual(new Map([['enterprise', 3]]));
    expect(plant.errors).toEqual([expect.objectContaining({ events: 3, zone: 'enterprise' })]);
    expect(bridge.troubles).toEqual([]);
  });

  test('BND-16: two rules of one zone and predicate that both refuse an event leave one note, and the others go on', async () => {
    const plant = await plantNode({}, [
      { subject: 'basket:{payload.serial}' },
      { event: 'rfid.*', subject: 'pallet:{payload.pallet}' },
    ]);
    const bridge = plant.bridge();
    await bridge.listen();
    await plant.emit([moved('A', 1), moved('A', 2, { payload: { n: 2, serial: 'A', pallet: 'P' } })]);
    bridge.start();
    await until('it is past the refused event', () => isPast(plant));
    expect(await factsOf(plant)).toEqual(['A 2', 'pallet:P 2']);
    const { rows } = await plant.database.query(
      'select event_type as type, message from boundary.refused_events',
    );
    // The reason of the first rule.
    expect(rows).toEqual([{ type: 'rfid.movement', message: expect.stringContaining('payload.serial') }]);
    expect(plant.errors).toEqual([expect.objectContaining({ events: 1 })]);
  });

  test('BND-16: a full stream keeps its events waiting, those to another zone go on; nothing is lost or out of order', async () => {
    const lab = (await testNode()).node.zones.resolve('lab', 'zone');
    const limits = { maxBytes: 200_000, reserveBytes: 0, refuseAt: 0.8, acceptAt: 0.7 };
    const plant = await plantNode({ admission: { limits, refreshMs: 0 } }, [
      {},
      { event: 'lab.*', to: lab, predicate: 'seen_at' },
    ]);
    const bridge = plant.bridge();
    await bridge.listen();
    bridge.start();
    const text = 'x'.repeat(10_000);
    const names = Array.from({ length: 150 }, (_, i) => `B${i % 5} ${i}`);
    for (const [i] of names.entries()) await plant.emit([moved(`B${i % 5}`, i, { payload: { n: i, text } })]);
    await until('it says that it waits', () => bridge.troubles.length === 1);
    expect(bridge.troubles[0]).toMatch(/wait to become facts for zone "enterprise": .*takes no more/);
    await plant.emit([moved('L', 1, { type: 'lab.seen' })]);
    await until('the laboratory has its fact', () => isPast(plant, 'boundary:lab'));
    expect(await factsOf(plant, { ...out, to: 'lab' })).toEqual(['L 1']);
    expect((await factsOf(plant)).length).toBeLessThan(names.length);
    // The other zone comes back, and takes what there is, again and again.
    const taken: string[] = [];
    await until('all are taken', async () => {
      const entries = await plant.store.read(out, { after: taken.length, limit: 1000, maxBytes: 1e9 });
      for (const { record } of entries)
        if ('object' in record) {
          const { n } = (JSON.parse(record.object) as { payload: { n: number } }).payload;
          taken.push(`${record.subject.replace('basket:', '')} ${n}`);
        }
      if (entries.length > 0) await plant.store.trim(out, taken.length);
      return taken.length >= names.length;
    });
    expect(taken).toEqual(names);
    await until('nothing waits', () => bridge.troubles.length === 0);
    expect(plant.errors).toEqual([]);
  });

  test('BND-16: a zone without a rule is not listened for any more', async () => {
    const plant = await plantNode();
    await plant.bridge().listen();
    const listeners = async () =>
      (await plant.database.query<{ name: string }>('select name from tallyman_events.listeners')).rows;
    expect(await listeners()).toEqual([{ name: 'boundary:enterprise' }]);
    const { database, node } = plant;
    const settings = { zone: node.zone, sendsTo: node.sendsTo, tenantId: 'default', eventRules: [] };
    await new FactsFromEvents({ settings, database, intake: node.intake }, silentLogger).listen();
    expect(await listeners()).toEqual([]);
  });
});

describe('facts as events', () => {
  test('BND-16: facts of a rule become events once, in order, with two processes at work, and are not trimmed before', async () => {
    const zones = await twoZones();
    const { enterprise } = zones;
    const into: StreamId = { ...out, buffer: 'forward' };
    for (let n = 1; n <= 3; n++) await zones.append(`before-${n}`, n);
    await zones.push();
    const settings = { ...enterprise.node, receivedRules: [{ predicate: 'is' }] };
    const bridge = (receivedRules: (typeof settings)['receivedRules'] = settings.receivedRules) => {
      const made = new EventsFromFacts(
        { settings: { ...settings, receivedRules }, database: enterprise.database, store: enterprise.store },
        silentLogger,
      );
      onTestFinished(() => made.stop());
      return made;
    };
    await bridge().listen();
    for (let n = 1; n <= 60; n++) await zones.append(`m${n}`, { n });
    while ((await zones.push()) > 0);
    // All are old enough; those before the first start are confirmed, the others are not events yet.
    const later = new Date(Date.now() + 3_600_000);
    expect(await trimConfirmed(enterprise.store, into, later)).toBe(3);
    expect(await trimConfirmed(enterprise.store, into, later)).toBe(0);
    const told = async () =>
      (
        await enterprise.database.query<{ id: string; offset: number; type: string }>(
          `select payload ->> 'message_id' as id, (payload ->> 'offset')::int as "offset", event_type as type
             from tallyman_events.events v order by v.id`,
        )
      ).rows;
    const bridges = [bridge(), bridge()];
    for (const each of bridges) {
      await each.listen();
      each.start();
    }
    await until('all are told', async () => (await told()).length >= 60);
    await zones.append('last');
    await zones.push();
    await until('the last one is told', async () => (await told()).length >= 61);
    expect(await told()).toEqual(
      [...Array.from({ length: 60 }, (_, i) => `m${i + 1}`), 'last'].map((id, i) => ({
        id,
        offset: i + 4,
        type: 'boundary.fact.received',
      })),
    );
    // Sought back: what was told is not told again.
    expect((await enterprise.store.seek(into, eventsConsumer, { after: 0 })).cursor).toBe(3);
    await until('it has come to the end again', async () =>
      (await enterprise.store.consumers(into)).every(({ cursor }) => cursor === 64),
    );
    expect(await told()).toHaveLength(61);
    expect(await trimConfirmed(enterprise.store, into, later)).toBe(61);
    await Promise.all(bridges.map((each) => each.stop()));
    await bridge([]).listen();
    expect(await enterprise.store.consumers(into)).toEqual([]);
  });

  test('BND-16: its consumer is the node’s own', async () => {
    const enterprise = await testNode('enterprise');
    const { port } = await enterprise.serve();
    const call = fetch(`http://127.0.0.1:${port}/tallyman.boundary.v1.BoundaryService/FetchFacts`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        stream: { fromZone: 'plant-a', toZone: 'enterprise' },
        consumerName: eventsConsumer,
      }),
    });
    expect(await codeOf(call.then((answer) => answer.json()))).toMatchObject({
      code: 'invalid_argument',
      message: expect.stringContaining('must not begin with "node:"'),
    });
  });
});
