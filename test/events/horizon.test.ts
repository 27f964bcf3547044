import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { takeTenantRole } from '../../src/engine/database/tenant.ts';
import { emit, emitMany } from '../../src/events/emit.ts';
import { readEvents } from '../../src/events/read.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { type EventScene, eventScene, moved } from './support.ts';

async function connect({ url }: EventScene): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end().catch(() => {}));
  return client;
}

const aggregates = async (scene: EventScene, after = '0') => {
  const { events, cursor } = await scene.events.list({}, { after, limit: 1000 });
  return { seen: events.map(({ aggregateId }) => aggregateId), cursor };
};

/** The reader as one would write it first: everything that is there, up to the newest id. */
const withoutHorizon = `create or replace function tallyman_events.horizon() returns bigint
  language sql volatile as 'select tallyman_events.position()'`;

/** A transaction draws its id first and commits last; answers what a reader with a cursor has seen in the end. */
async function lateCommit(scene: EventScene): Promise<string[]> {
  const early = await connect(scene);
  await early.query('begin');
  await emit(early, moved('late'));
  await scene.events.emit(moved('soon'));
  const first = await aggregates(scene);
  await early.query('commit');
  const second = await aggregates(scene, first.cursor);
  return [...first.seen, ...second.seen];
}

describe('the horizon', () => {
  it('WH-1 keeps a reader from passing an id whose transaction is still under way', async () => {
    expect(await lateCommit(await eventScene())).toEqual(['late', 'soon']);
  });

  it('is what does it: without it the late event is missed', async () => {
    const scene = await eventScene();
    await scene.rows(withoutHorizon);
    expect(await lateCommit(scene)).toEqual(['soon']);
  });

  it('does not wait for a transaction that rolled back or whose connection was killed', async () => {
    const scene = await eventScene();
    const [undone, killed] = [await connect(scene), await connect(scene)];
    for (const client of [undone, killed]) {
      await client.query('begin');
      await emit(client, moved('never'));
    }
    await scene.events.emit(moved('one'));
    expect((await aggregates(scene)).seen).toEqual([]);
    await undone.query('rollback');
    const { rows } = await killed.query<{ pid: number }>('select pg_backend_pid() as pid');
    await scene.rows('select pg_terminate_backend($1)', [rows[0]?.pid]);
    await expect.poll(async () => (await aggregates(scene)).seen).toEqual(['one']);
  });

  it('holds through savepoints: what was announced before one stays announced', async () => {
    const scene = await eventScene();
    const client = await connect(scene);
    await client.query('begin');
    await client.query('savepoint s');
    await emit(client, moved('undone'));
    await client.query('rollback to s');
    await emit(client, moved('late'));
    await scene.events.emit(moved('soon'));
    const first = await aggregates(scene);
    expect(first.seen).toEqual([]);
    await client.query('commit');
    expect((await aggregates(scene, first.cursor)).seen).toEqual(['late', 'soon']);
  });

  it('takes one lock for a transaction, however many events it emits', async () => {
    const scene = await eventScene();
    const client = await connect(scene);
    await client.query('begin');
    for (let n = 0; n < 50; n += 1) await emit(client, moved(`P-${n}`));
    await scene.events.emit(moved('other'));
    await emit(client, moved('P-50'));
    const { rows } = await client.query(
      `select 1 from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`,
    );
    expect(rows).toHaveLength(1);
    await client.query('commit');
    expect((await aggregates(scene)).seen).toHaveLength(52);
  });

  it('refuses a reader whose snapshot may be older than the answer', async () => {
    const scene = await eventScene();
    const client = await connect(scene);
    await client.query('begin isolation level repeatable read');
    await expect(readEvents(client, '0')).rejects.toThrow('READ COMMITTED, not REPEATABLE READ');
  });

  it('works for a tenant, who sees the events of nobody else', async () => {
    const scene = await eventScene();
    const client = await connect(scene);
    const asAcme = `begin; ${takeTenantRole}; set local tallyman.tenant = 'acme'`;
    await client.query(asAcme);
    await emit(client, moved('ours', { tenantId: 'acme' }));
    await client.query('commit');
    await scene.events.emit(moved('theirs'));
    await client.query(asAcme);
    const page = await readEvents(client, '0', { tenantId: 'acme' });
    expect(page.events.map(({ aggregateId }) => aggregateId)).toEqual(['ours']);
    await expect(emit(client, moved('forged', { tenantId: 'other' }))).rejects.toThrow('row-level security');
  });
});

interface Race {
  readonly written: readonly string[];
  readonly read: readonly string[];
}

/** Writers that commit, roll back or die after a random while, and a reader that follows them by its cursor. */
async function race(scene: EventScene, { writers = 8, rounds = 25 } = {}): Promise<Race> {
  const random = seededRandom();
  const done = new AbortController();
  const read: string[] = [];
  const reader = (async () => {
    for (let after = '0', isLast = false; ; ) {
      const page = await readEvents(scene.tallyman.database, after, {}, 1000);
      read.push(...page.events.map(({ position }) => position));
      after = page.cursor;
      if (isLast) return;
      isLast = done.signal.aborted;
      await sleep(random.between(0, 3));
    }
  })();
  await Promise.all(
    Array.from({ length: writers }, async (_, w) => {
      let client = await connect(scene);
      for (let round = 0; round < rounds; round += 1) {
        await client.query('begin');
        for (let part = 0; part <= random.between(0, 2); part += 1) {
          const batch = Array.from({ length: 1 + random.whole(5) }, (_, n) =>
            moved(`${w}-${round}-${part}-${n}`),
          );
          await emitMany(client, batch);
          await sleep(random.between(0, 8));
        }
        const chance = random.between(0, 1);
        if (chance < 0.8) await client.query('commit');
        else if (chance < 0.9) await client.query('rollback');
        else {
          const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
          await scene.rows('select pg_terminate_backend($1)', [rows[0]?.pid]);
          client = await connect(scene);
        }
      }
    }),
  );
  // A killed transaction is gone when its locks are.
  await expect
    .poll(() =>
      scene.rows(`select 1 from pg_locks where locktype = 'advisory' and database is not null
                              and database = (select oid from pg_database where datname = current_database())
                              and classid::bigint >> 16 = 29797`),
    )
    .toEqual([]);
  done.abort();
  await reader;
  const rows = await scene.rows<{ id: string }>('select id from tallyman_events.events order by id');
  return { written: rows.map(({ id }) => id), read };
}

describe('many transactions at once', () => {
  it('WH-1 a reader gets every committed event once, in the order of ids', async () => {
    const { written, read } = await race(await eventScene());
    expect(written.length).toBeGreaterThan(100);
    expect(read).toEqual(written);
  }, 240_000);

  it('is a test that can fail: without the horizon events are missed', async () => {
    const scene = await eventScene();
    await scene.rows(withoutHorizon);
    const { written, read } = await race(scene);
    expect(read.length).toBeLessThan(written.length);
  }, 240_000);
});
