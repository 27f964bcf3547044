import { Registry } from 'prom-client';
import { describe, expect, onTestFinished, test } from 'vitest';
import { boundaryApp } from '../../../src/apps/boundary/app.ts';
import { boundaryKeys } from '../../../src/apps/boundary/config.ts';
import { noteMode } from '../../../src/apps/boundary/handoff/handoffs.ts';
import { exposeBoundary } from '../../../src/apps/boundary/metrics.ts';
import { localCaller, openNode } from '../../../src/apps/boundary/node.ts';
import { settingsFrom } from '../../../src/apps/boundary/settings.ts';
import type { StreamId } from '../../../src/apps/boundary/store/store.ts';
import { collectObjects, trimStreams } from '../../../src/apps/boundary/upkeep.ts';
import { StreamWatch } from '../../../src/apps/boundary/watch.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { settingsOf } from '../../../src/host/app.ts';
import { loadConfig } from '../../../src/host/config.ts';
import { fact, sign } from './store/facts.ts';
import { boundaryDatabase } from './support.ts';
import { pairedZones } from './zones.ts';

const out: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

/** A node of the plant that nobody serves, with a clock of its own for the watch. */
async function scene(more: Readonly<Record<string, string>> = {}) {
  const { plant } = await pairedZones();
  const { database } = await boundaryDatabase();
  const config = loadConfig([boundaryApp], { env: { ...plant.env, ...more } });
  const settings = settingsFrom(settingsOf(boundaryKeys, config));
  if (!settings) throw new Error('no zone');
  const node = await openNode(settings, database);
  onTestFinished(() => node.stop());
  const lines: string[] = [];
  const note = (_fields: object, message: string): void => void lines.push(message);
  const registry = new Registry();
  let now = 0;
  const watch = new StreamWatch({
    node,
    observer: exposeBoundary(registry),
    logger: { debug: note, info: note, warn: note, error: note },
    clock: () => now,
  });
  const caller = localCaller(settings, 'test');
  const append = (messageId: string) =>
    node.intake.append(caller, {
      messageId,
      fromZone: 'plant-a',
      toZone: 'enterprise',
      producedAt: 1,
      subject: 'order:1',
      predicate: 'is',
      objectJson: '1',
    });
  const metric = async (name: string, buffer = 'store', labels = ''): Promise<number> => {
    const text = await registry.metrics();
    const line = text
      .split('\n')
      .find(
        (each) => each.startsWith(`tallyman_boundary_${name}{buffer="${buffer}"`) && each.includes(labels),
      );
    return Number(line?.split(' ').at(-1));
  };
  const events = async () =>
    (
      await database.query<{ type: string }>(
        'select event_type as type from tallyman_events.events order by id',
      )
    ).rows.map(({ type }) => type);
  const later = (ms: number): void => {
    now += ms;
  };
  return { node, database, watch, lines, append, metric, events, later };
}

/** As the peer's node does that pulls, or the hand-off that pushes. */
const fetchedBy = (instance: string) => ({ instance, leaseMs: 60_000, start: { after: 0 } });

describe('the watch over streams', () => {
  test('BND-10: connected, but the frontier does not move: metric, one line, health and event; once, also for a second process', async () => {
    const { node, database, watch, lines, append, metric, events, later } = await scene();
    for (const id of ['a', 'b', 'c']) await append(id);
    await noteMode(database, out, 'normal', undefined);
    const opened = await node.store.openConsumer(out, 'peer:enterprise', fetchedBy('n'));
    await watch.look();
    later(59_000);
    await watch.look();
    expect(watch.troubles).toEqual([]);
    expect([await metric('stalled'), await metric('backlog_facts'), await metric('frontier_offset')]).toEqual(
      [0, 3, 0],
    );
    later(2_000);
    await watch.look();
    await watch.look();
    expect(await metric('stalled')).toBe(1);
    expect(watch.troubles).toEqual([
      expect.stringContaining('is stalled: the other zone answers, but the frontier stays at 0'),
    ]);
    expect(lines).toEqual([expect.stringContaining('stream plant-a → enterprise is stalled')]);
    expect(await events()).toEqual(['boundary.stream.stalled']);
    // Another process has just begun to watch: it believes what is known, and tells nothing again.
    const another = new StreamWatch({
      node,
      observer: exposeBoundary(new Registry()),
      logger: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
    });
    await another.look();
    expect(another.troubles).toHaveLength(1);
    // It moves, though facts are left.
    await node.store.noteFetched(out, opened, 3);
    await node.store.confirm(out, 'peer:enterprise', 'n', 1);
    await watch.look();
    expect([await metric('stalled'), await metric('backlog_facts')]).toEqual([0, 2]);
    expect(watch.troubles).toEqual([]);
    expect(await events()).toEqual(['boundary.stream.stalled', 'boundary.stream.recovered']);
    expect(lines).toHaveLength(2);
  });

  test('BND-10: while the other zone is away nothing is stalled, for however long', async () => {
    const { database, watch, append, metric, events, later } = await scene();
    await append('a');
    await noteMode(database, out, 'autonomous', 'no way to it');
    await watch.look();
    later(10 * 24 * 3_600_000);
    await watch.look();
    expect([await metric('stalled'), await metric('mode', 'store', 'mode="autonomous"')]).toEqual([0, 1]);
    expect(watch.troubles).toEqual([]);
    expect(await events()).toEqual(['boundary.zone.autonomous']);
  });

  test('BND-10: a stream that the other zone refuses is stalled, with the reason', async () => {
    const { database, watch, append, later } = await scene();
    await append('a');
    await noteMode(database, out, 'refused', 'epoch_mismatch: restored');
    await watch.look();
    later(61_000);
    await watch.look();
    expect(watch.troubles).toEqual([expect.stringContaining('epoch_mismatch: restored')]);
  });

  test('BND-9: that a stream is full, and takes facts again, is told once each', async () => {
    const { node, append, events, watch } = await scene();
    await append('a');
    await node.store.setFull(out, true);
    await node.store.setFull(out, true);
    await watch.look();
    expect(watch.troubles).toEqual(['stream plant-a → enterprise is full and refuses facts']);
    await node.store.setFull(out, false);
    await node.store.setFull(out, false);
    expect(await events()).toEqual(['boundary.stream.full', 'boundary.stream.accepting']);
  });

  test('BND-8: a fact in quarantine is told once, and counted', async () => {
    const { node, events, watch, metric } = await scene();
    const entry = {
      ...out,
      epoch: '5f0c3d5e-6a37-4a53-8f3c-0f8a3f1f9a11',
      offset: 1,
      messageId: 'a',
      reason: 'too_large',
      message: 'too large',
      text: '{}',
      quarantinedAt: new Date(),
    };
    await node.store.quarantine('default', [entry]);
    await node.store.quarantine('default', [entry, { ...entry, offset: 2, messageId: 'b' }]);
    await watch.look();
    expect(await metric('quarantined_facts')).toBe(2);
    expect(await events()).toEqual(['boundary.fact.quarantined', 'boundary.fact.quarantined']);
  });

  test('BND-5: objects that no fact names are removed after their grace time, others stay', async () => {
    const { node } = await scene();
    const put = async (key: string) => {
      async function* bytes() {
        yield Buffer.from(key);
      }
      return node.objects.put({ tenantId: 'default', bucket: 'files', key }, bytes());
    };
    const { digest } = await put('named');
    await put('orphan');
    await node.intake.append(localCaller(node.settings, 'test'), {
      messageId: 'a',
      fromZone: 'plant-a',
      toZone: 'enterprise',
      producedAt: 1,
      subject: 'order:1',
      predicate: 'has_file',
      objectJson: JSON.stringify({ bucket: 'files', key: 'named', digest }),
    });
    const isThere = (key: string) =>
      node.objects.info({ tenantId: 'default', bucket: 'files', key }).then(
        () => true,
        () => false,
      );
    await collectObjects(node, silentLogger);
    expect([await isThere('named'), await isThere('orphan')]).toEqual([true, true]);
    const settings = { ...node.settings, objects: { ...node.settings.objects, graceMs: 0 } };
    await collectObjects({ ...node, settings }, silentLogger);
    expect([await isThere('named'), await isThere('orphan')]).toEqual([true, false]);
  });

  test('BND-9: facts that the peer has confirmed are trimmed when they are old, others stay', async () => {
    const { node, append } = await scene({ TALLYMAN_BOUNDARY_RETENTION_KEEP_MS: '0' });
    for (const id of ['a', 'b', 'c']) await append(id);
    const opened = await node.store.openConsumer(out, 'peer:enterprise', fetchedBy('n'));
    expect(await trimStreams(node)).toBe(0);
    await node.store.noteFetched(out, opened, 3);
    await node.store.confirm(out, 'peer:enterprise', 'n', 2);
    expect(await trimStreams(node)).toBe(2);
    expect(await node.store.state(out)).toMatchObject({ first: 3, last: 3 });
  });

  test('BND-9: a stream that was drained takes facts again though nobody appends; what is not needed for that is kept', async () => {
    const { node, append, events, watch } = await scene({ TALLYMAN_BOUNDARY_LIMITS_MAX_BYTES: '4000' });
    let last = 0;
    for (let isFull = false; !isFull; ) {
      const appended = await append(`m${last}`).catch((error: unknown) => error);
      isFull = appended instanceof Error;
      last += isFull ? 0 : 1;
    }
    const opened = await node.store.openConsumer(out, 'peer:enterprise', fetchedBy('n'));
    await trimStreams(node);
    expect(await node.store.state(out)).toMatchObject({ first: 1, fullSince: expect.any(Date) });
    await node.store.noteFetched(out, opened, last);
    await node.store.confirm(out, 'peer:enterprise', 'n', last);
    await trimStreams(node);
    const state = await node.store.state(out);
    expect(state).toMatchObject({ last, fullSince: undefined });
    expect(state?.first).toBeGreaterThan(1);
    expect(state?.first).toBeLessThan(last);
    await watch.look();
    expect(watch.troubles).toEqual([]);
    expect(await events()).toEqual(['boundary.stream.full', 'boundary.stream.accepting']);
  });

  test('BND-9: a disk without room takes neither objects nor facts of peers', async () => {
    const { node } = await scene({ TALLYMAN_BOUNDARY_LIMITS_RESERVE_BYTES: `${2 ** 52}` });
    async function* bytes() {
      yield Buffer.from('x');
    }
    await expect(
      node.objects.put({ tenantId: 'default', bucket: 'files', key: 'a' }, bytes()),
    ).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'disk_full' });
    const into: StreamId = { ...out, buffer: 'forward', from: 'enterprise', to: 'plant-a' };
    const entry = { offset: 1, key: 'm1', digest: '', chain: '', text: '{}' };
    await expect(
      node.store.deliver(into, { epoch: '', chainBefore: '', entries: [entry] }, sign),
    ).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'stream_full' });
    expect(await node.store.state(into)).toBeUndefined();
  });

  test('BND-9: a stream that cannot be trimmed is named, and holds up no other; the index forgets in statements that end soon', async () => {
    const { node, database } = await scene({ TALLYMAN_BOUNDARY_RETENTION_KEEP_MS: '0' });
    const lab: StreamId = { ...out, to: 'lab' };
    for (const stream of [out, lab]) {
      for (const id of ['a', 'b']) await node.store.append(stream, fact(`${stream.to} ${id}`));
      const peer = `peer:${stream.to}`;
      const opened = await node.store.openConsumer(stream, peer, fetchedBy('n'));
      await node.store.noteFetched(stream, opened, 2);
      await node.store.confirm(stream, peer, 'n', 1);
    }
    const indexed = `insert into boundary.subjects
        (tenant_id, buffer, from_zone, to_zone, subject, "offset", message_id, predicate, appended_at)
      select 'default', 'store', 'plant-a', $1, 'order:1', n, 'm' || n, 'is', now() from generate_series($2::int, $3) n`;
    await database.query(indexed, ['enterprise', 1, 1]);
    await database.query(indexed, ['lab', -6000, 3]);
    await database.query(`
      create table public.forgotten (count bigint);
      create function public.note_forgotten() returns trigger language plpgsql as $$
      begin
        if exists (select from gone where to_zone = 'enterprise') then raise 'a broken index'; end if;
        insert into public.forgotten select count(*) from gone;
        return null;
      end $$;
      alter function public.note_forgotten() security definer;
      create trigger note_forgotten after delete on boundary.subjects
        referencing old table as gone for each statement execute function public.note_forgotten()`);
    await expect(trimStreams(node)).rejects.toThrow(
      /^store buffer of stream plant-a → enterprise: a broken index$/,
    );
    expect(await node.store.state(lab)).toMatchObject({ first: 2 });
    const { rows } = await database.query<{ offset: number }>(
      `select "offset"::int from boundary.subjects where to_zone = 'lab' order by 1`,
    );
    expect(rows.map(({ offset }) => offset)).toEqual([2, 3]);
    const { rows: forgotten } = await database.query<{ count: number }>(
      'select count::int from public.forgotten',
    );
    expect(forgotten.map(({ count }) => count)).toEqual([5000, 1002]);
  });

  test('BND-10: offsets that a new epoch left out are no backlog: nothing is stalled', async () => {
    const { node, database, watch, append, metric, later } = await scene();
    await append('a');
    const opened = await node.store.openConsumer(out, 'peer:enterprise', fetchedBy('n'));
    await node.store.noteFetched(out, opened, 1);
    await node.store.confirm(out, 'peer:enterprise', 'n', 1);
    await node.store.newEpoch(out, 10);
    await noteMode(database, out, 'normal', undefined);
    await watch.look();
    later(61_000);
    await watch.look();
    expect([watch.troubles, await metric('stalled'), await metric('backlog_facts')]).toEqual([[], 0, 0]);
    await append('b');
    await watch.look();
    expect(await metric('backlog_facts')).toBe(9);
  });
});
