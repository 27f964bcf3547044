import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { firstChain, type LogEntry, nextChain } from '../../../src/engine/log/entry.ts';
import { Log } from '../../../src/engine/log/log.ts';
import { logAdvance } from '../../../src/engine/sql/log-advance.ts';
import { logCopyKeys } from '../../../src/engine/sql/log-copy-keys.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

let fresh: FreshDatabase;
let log: Log;

beforeEach(async () => {
  fresh = await freshDatabase();
  log = new Log(fresh.database);
});
afterEach(async () => {
  await log.stop();
  await fresh.drop();
});

const numbers = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i);
const entry = (key: string, payload: unknown = { key }) => ({ key, payload });
const fill = (count: number, stream = 'facts') =>
  Promise.all(numbers(1, count).map((n) => log.append(stream, entry(`k${n}`))));

describe('chain and epoch', () => {
  it('BND-4: every entry carries a chain hash over the one before, which anybody can compute', async () => {
    await fill(30);
    // Some keys that are taken lie between new ones.
    await Promise.all(numbers(20, 50).map((n) => log.append('facts', entry(`k${n}`))));
    await log.append('facts', { key: 'ключ', payload: 'ü', digest: 'ab'.repeat(32) });
    const info = await log.stream('facts');
    const entries = await log.read('facts');
    expect(entries).toHaveLength(51);
    let chain = firstChain(info?.epoch ?? '');
    for (const each of entries) {
      chain = nextChain(chain, each);
      expect(each.chain).toBe(chain);
    }
    expect(info?.chain).toBe(chain);

    // The documented formula, by other means.
    const [first] = entries;
    const before = createHash('sha256')
      .update(Buffer.from((info?.epoch ?? '').replaceAll('-', ''), 'hex'))
      .digest();
    const offset = Buffer.from([0, 0, 0, 0, 0, 0, 0, 1]);
    const payloadHash = createHash('sha256').update('{"key":"k1"}').digest();
    const parts = [before, offset, payloadHash, payloadHash, Buffer.from('k1')];
    expect(first?.chain).toBe(createHash('sha256').update(Buffer.concat(parts)).digest('hex'));
  });

  it('BND-4: an entry that was changed in the database does not fit its chain hash', async () => {
    await fill(3);
    await fresh.database.query(
      `update tallyman.log_entries set payload = '{"key":"forged"}' where "offset" = 2`,
    );
    const entries = await log.read('facts');
    const fits = (i: number) =>
      nextChain((entries[i - 1] as LogEntry).chain, entries[i] as LogEntry) === entries[i]?.chain;
    expect([fits(1), fits(2)]).toEqual([false, true]);
  });

  it('BND-4: another epoch or offset than expected is refused, and nothing is written', async () => {
    await fill(2);
    const { epoch = '' } = (await log.stream('facts')) ?? {};
    const append = (key: string, expected: { epoch?: string; offset?: number }) =>
      log
        .appendWithin(fresh.database, 'facts', [entry(key)], expected)
        .catch(({ code }: { code: string }) => code);
    expect(await append('a', { epoch, offset: 3 })).toEqual([{ offset: 3, existing: false }]);
    expect(await append('b', { epoch, offset: 3 })).toBe('UNEXPECTED_OFFSET');
    const next = await log.newEpoch('facts', 10);
    expect(next).not.toBe(epoch);
    expect(await append('c', { epoch })).toBe('UNEXPECTED_OFFSET');
    expect(await append('d', { epoch: next, offset: 10 })).toEqual([{ offset: 10, existing: false }]);
    expect((await log.read('facts')).map(({ key }) => key)).toEqual(['k1', 'k2', 'a', 'd']);
    const given = '0190b3d2-7b1c-7cc3-98c4-dc0c0c07398f';
    await log.appendWithin(fresh.database, 'copy', [entry('x')], { epoch: given, offset: 1 });
    expect(await log.stream('copy')).toMatchObject({ epoch: given, last: 1 });
    await expect(log.newEpoch('nothing')).rejects.toMatchObject({ code: 'STREAM_NOT_FOUND' });
  });
});

describe('key spaces and tenants', () => {
  const north = { name: 'north', keySpace: 'plant-a' };
  const south = { name: 'south', keySpace: 'plant-a' };

  it('BND-3: a key is unique among the streams of a key space, also after its entry was trimmed', async () => {
    await log.append(north, entry('m-1'));
    expect(await log.append(south, entry('m-1'))).toEqual({ offset: 1, existing: true });
    expect(await log.find(south, 'm-1')).toMatchObject({ stream: 'north', offset: 1 });
    await log.trim(north, 1);
    const again = log.append(south, entry('m-1', 'other'));
    await expect(again).rejects.toMatchObject({ code: 'CONFLICTING_DUPLICATE' });
    expect(await log.append(south, entry('m-1'))).toEqual({ offset: 1, existing: true });
    expect(await log.head(south)).toEqual({ first: 1, last: 0 });
    await expect(log.append({ name: 'north' }, entry('m-2'))).rejects.toThrow('key space "plant-a"');
  });

  it('BND-3: appends of the same keys to two streams, in opposite orders, do not deadlock', async () => {
    const keys = numbers(1, 400).map((n) => entry(`k${n}`));
    const within = (stream: typeof north, entries: typeof keys) =>
      fresh.database.transaction((tx) => log.appendWithin(tx, stream, entries));
    await Promise.all(
      numbers(1, 12).map((n) => (n % 2 ? within(north, keys) : within(south, keys.toReversed()))),
    );
    const [a, b] = await Promise.all([log.head(north), log.head(south)]);
    expect(a.last + b.last).toBe(400);
  });

  it('tenants have streams and keys of their own', async () => {
    const acme = { name: 'facts', tenantId: 'acme' };
    await log.append('facts', entry('m-1'));
    expect(await log.append(acme, entry('m-1', 'other'))).toEqual({ offset: 1, existing: false });
    expect((await log.read(acme)).map(({ payload }) => payload)).toEqual(['other']);
    expect((await log.streams({ tenantId: 'acme' })).map(({ name }) => name)).toEqual(['facts']);
    expect((await log.streams()).map(({ tenantId }) => tenantId)).toEqual(['default']);
  });
});

describe('streams', () => {
  it('are listed with what they hold; bytes follow appends and trims', async () => {
    await fill(10, 'b');
    await log.append('a', entry('x', 'ü'));
    expect(await log.streams()).toMatchObject([
      { name: 'a', first: 1, last: 1, bytes: 4 },
      { name: 'b', first: 1, last: 10, bytes: 121 },
    ]);
    await fill(12, 'b');
    await log.trim('b', 9);
    expect(await log.streams({ after: 'a' })).toMatchObject([{ name: 'b', first: 10, last: 12, bytes: 39 }]);
    expect((await log.streams({ limit: 1 })).map(({ name }) => name)).toEqual(['a']);
  });

  it('are deleted with their entries and keys; a new one of the name has another epoch', async () => {
    await fill(20);
    await log.append('other', entry('k1'));
    await log.trim('facts', 10);
    const before = await log.stream('facts');
    expect(await log.deleteStream('facts')).toBe(true);
    expect(await log.deleteStream('facts')).toBe(false);
    expect(await log.find('facts', 'k1')).toBeUndefined();
    expect(await log.find('other', 'k1')).toBeDefined();
    expect(await log.append('facts', entry('k1', 'new'))).toEqual({ offset: 1, existing: false });
    expect((await log.stream('facts'))?.epoch).not.toBe(before?.epoch);
  });

  it('refuse appends while they are deleted', async () => {
    await fill(1);
    await fresh.database.query('update tallyman.log_streams set deleted_at = now()');
    await expect(log.append('facts', entry('x'))).rejects.toMatchObject({ code: 'STREAM_DELETED' });
    expect(await log.deleteStream('facts')).toBe(true);
  });

  it('know the offset of a time, whatever the clock did', async () => {
    await fill(5);
    await fresh.database.query(
      `update tallyman.log_entries set appended_at = timestamptz '2026-01-01Z' + "offset" * interval '1 hour';
       update tallyman.log_streams set appended_at = '2100-01-01Z'`,
    );
    await log.append('facts', entry('later'));
    const at = (time: string) => log.offsetAt('facts', new Date(time));
    expect(await at('2025-01-01T00:00:00Z')).toBe(1);
    expect(await at('2026-01-01T03:00:00Z')).toBe(3);
    expect(await at('2026-01-01T03:00:01Z')).toBe(4);
    expect(await at('2099-01-01T00:00:00Z')).toBe(6);
    expect(await at('2101-01-01T00:00:00Z')).toBe(7);
    await log.trim('facts', 3);
    expect(await at('2025-01-01T00:00:00Z')).toBe(4);
  });
});

describe('trimming', () => {
  const idOf = async (): Promise<number> =>
    (await fresh.database.query('select id from tallyman.log_streams')).rows[0]?.id;

  it('holds up no appender while keys are copied or entries dropped', async () => {
    await fill(50);
    const locked = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const blocker = fresh.database.transaction(async (tx) => {
      await tx.query('lock table tallyman.log_keys in share row exclusive mode');
      locked.resolve();
      await release.promise;
    });
    await locked.promise;
    const trimmed = log.trim('facts', 40);
    await until('the trim waits to copy keys', async () => {
      const { rows } = await fresh.database.query(
        `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%log_copy_keys%'`,
      );
      return rows.length > 0;
    });
    expect(await log.append('facts', entry('beside'))).toEqual({ offset: 51, existing: false });
    release.resolve();
    await blocker;
    expect(await trimmed).toBe(40);
  });

  it('BND-9: a trim ends when its stream is deleted meanwhile', async () => {
    await fill(10);
    const id = await idOf();
    let trimmed: Promise<number> | undefined;
    await fresh.database.transaction(async (tx) => {
      await tx.query('select 1 from tallyman.log_streams where id = $1 for update', [id]);
      trimmed = log.trim('facts', 5);
      await until('the trim waits for the stream', async () => {
        const { rows } = await fresh.database.query(
          `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%log_advance%'`,
        );
        return rows.length > 0;
      });
      for (const table of ['entries', 'keys'])
        await tx.query(`delete from tallyman.log_${table} where stream = $1`, [id]);
      await tx.query('delete from tallyman.log_streams where id = $1', [id]);
    });
    expect(await trimmed).toBe(0);
  });

  it('BND-3: a process that dies between two steps leaves nothing that can be appended twice', async () => {
    await fill(10);
    const id = await idOf();
    const step = await logCopyKeys(fresh.database, { stream: id, from: 1, upTo: 6, limit: 100 });
    const again = () => Promise.all(numbers(1, 10).map((n) => log.append('facts', entry(`k${n}`))));
    const same = numbers(1, 10).map((offset) => ({ offset, existing: true }));
    expect(await again()).toEqual(same);
    expect(await log.read('facts')).toHaveLength(10);
    expect((await log.find('facts', 'k2'))?.entry?.payload).toEqual({ key: 'k2' });
    await logAdvance(fresh.database, { stream: id, from: 1, ...step });
    expect(await again()).toEqual(same);
    expect((await log.read('facts')).map(({ offset }) => offset)).toEqual([7, 8, 9, 10]);
    expect(await log.find('facts', 'k2')).toMatchObject({ offset: 2, entry: undefined });
    expect(await log.trim('facts', 6)).toBe(0);
    const { rows } = await fresh.database.query('select count(*)::int as entries from tallyman.log_entries');
    expect(rows[0]?.entries).toBe(4);
    expect(await again()).toEqual(same);
  });
});

describe('reading', () => {
  it('stops before a limit of bytes, and returns at least one entry', async () => {
    for (const [n, size] of [10, 10, 50, 10].entries())
      await log.append('facts', entry(`k${n}`, 'x'.repeat(size - 2)));
    const read = async (maxBytes: number, after = 0) =>
      (await log.read('facts', { maxBytes, after })).map(({ offset }) => offset);
    expect(await read(20)).toEqual([1, 2]);
    expect(await read(69)).toEqual([1, 2]);
    expect(await read(70)).toEqual([1, 2, 3]);
    expect(await read(5)).toEqual([1]);
    expect(await read(5, 2)).toEqual([3]);
  });

  it('waits for an entry of the same process, of another one, and no longer than asked', async () => {
    const mine = log.read('facts', { waitMs: 60_000 });
    await log.append('facts', entry('mine'));
    expect((await mine).map(({ key }) => key)).toEqual(['mine']);

    const database = await Database.connect({ url: fresh.url });
    const other = new Log(database);
    const theirs = log.read('facts', { after: 1, waitMs: 60_000 });
    await other.append('facts', entry('theirs'));
    expect((await theirs).map(({ key }) => key)).toEqual(['theirs']);
    await other.stop();
    await database.close();

    expect(await log.read('facts', { after: 2, waitMs: 20 })).toEqual([]);
    const ended = new AbortController();
    const waiting = log.read('facts', { after: 2, waitMs: 60_000, signal: ended.signal });
    ended.abort();
    expect(await waiting).toEqual([]);
  });

  it('a waiting reader is woken by `grew` after a transaction of the caller', async () => {
    const waiting = log.read('facts', { waitMs: 60_000 });
    await fresh.database.transaction((tx) => log.appendWithin(tx, 'facts', [entry('a')]));
    log.grew('facts');
    expect(await waiting).toHaveLength(1);
  });
});

it('refuses to hold more than a limit of bytes in memory, and goes on when there is room', async () => {
  const small = new Log(fresh.database, { maxWaitingBytes: 1000 });
  const payload = 'x'.repeat(400);
  const outcomes = await Promise.allSettled(
    numbers(1, 4).map((n) => small.append('facts', entry(`k${n}`, payload))),
  );
  expect(outcomes.map((o) => (o.status === 'fulfilled' ? o.value.offset : o.reason.code))).toEqual([
    1,
    2,
    'LOG_BUSY',
    'LOG_BUSY',
  ]);
  expect((await small.append('facts', entry('k3', payload))).offset).toBe(3);
  // One that is larger than the limit by itself is not refused forever.
  expect((await small.append('facts', entry('large', 'x'.repeat(2000)))).offset).toBe(4);
});

it('BND-14: an entry that there is no room for holds back smaller ones of its call, and those before it go', async () => {
  const small = new Log(fresh.database, { maxWaitingBytes: 1000 });
  const call = [entry('a', 1), entry('b', 'x'.repeat(1200)), entry('c', 1)];
  const answers = await small.appendAll('facts', call);
  expect(answers.map((each) => ('offset' in each ? each.offset : (each as { code?: string }).code))).toEqual([
    1,
    'LOG_BUSY',
    'HELD_BACK',
  ]);
  expect((await log.read('facts')).map(({ key }) => key)).toEqual(['a']);
});
