import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { EventFollower, type EventFollowerOptions } from '../../src/events/follower.ts';
import { until } from '../support/engine.ts';
import { type EventScene, eventScene, moved } from './support.ts';

/** A listener that keeps what it is told in a table, in the transaction that moves its cursor. */
async function follower(scene: EventScene, more: { batch?: number; fail?: () => boolean } = {}) {
  const { tallyman } = scene;
  const started = new EventFollower({
    database: tallyman.database,
    listener: 'books',
    pollMs: 20,
    ...(more.batch && { batch: more.batch }),
    handle: async (tx, { after, upTo }) => {
      await tx.query(
        `insert into told (position, aggregate)
         select id, aggregate_id from tallyman_events.events where id > $1 and id <= $2 order by id`,
        [after, upTo],
      );
      if (more.fail?.()) throw new Error('broken on purpose');
    },
  });
  started.start();
  onTestFinished(() => started.stop());
  return started;
}

async function booksScene(): Promise<EventScene> {
  const scene = await eventScene();
  await scene.rows(
    'create table told (n bigint generated always as identity, position bigint primary key, aggregate text)',
  );
  await scene.rows(`select tallyman_events.listen('books')`);
  return scene;
}

const told = (scene: EventScene) =>
  scene
    .rows<{ aggregate: string }>('select aggregate from told order by n')
    .then((rows) => rows.map((r) => r.aggregate));

const names = (count: number) => Array.from({ length: count }, (_, n) => `P-${n}`);

describe('a follower', () => {
  it('gets every event once, in order, with several of them at work and batches that fail', async () => {
    const scene = await booksScene();
    let turns = 0;
    const fail = () => {
      turns += 1;
      return turns === 3;
    };
    await Promise.all([
      follower(scene, { batch: 50, fail }),
      follower(scene, { batch: 70 }),
      follower(scene),
    ]);
    for (let n = 0; n < 500; n += 100)
      await scene.events.emitMany(
        names(500)
          .slice(n, n + 100)
          .map((p) => moved(p)),
      );
    await until('all are told', async () => (await told(scene)).length >= 500);
    expect(await told(scene)).toEqual(names(500));
  });

  it('begins where the listener was made, also if it starts much later', async () => {
    const scene = await eventScene();
    await scene.events.emit(moved('before'));
    await scene.rows(
      'create table told (n bigint generated always as identity, position bigint primary key, aggregate text)',
    );
    await scene.rows(`select tallyman_events.listen('books')`);
    await scene.events.emit(moved('after'));
    await follower(scene);
    await until('it is told', async () => (await told(scene)).length > 0);
    expect(await told(scene)).toEqual(['after']);
  });

  it('looks at once when it is given a hint', async () => {
    const scene = await booksScene();
    const { tallyman } = scene;
    const seen: string[] = [];
    const lazy = new EventFollower({
      database: tallyman.database,
      listener: 'books',
      pollMs: 600_000,
      handle: async (_, { upTo }) => void seen.push(upTo),
    });
    lazy.start();
    onTestFinished(() => lazy.stop());
    await until('it is idle', async () => true);
    await scene.events.emit(moved('P-1'));
    lazy.hint();
    await until('it has looked', async () => seen.length === 1);
  });
});

describe('a batch that fails', () => {
  const broken = (scene: EventScene, more: Partial<EventFollowerOptions>) => {
    const made = new EventFollower({
      database: scene.tallyman.database,
      listener: 'books',
      pollMs: 20,
      handle: async (tx, { after, upTo }) => {
        await tx.query(
          `insert into told (position, aggregate)
           select id, aggregate_id from tallyman_events.events where id > $1 and id <= $2
              and 1 / (case when aggregate_id = 'P-3' then 0 else 1 end) = 1 order by id`,
          [after, upTo],
        );
      },
      ...more,
    });
    made.start();
    onTestFinished(() => made.stop());
  };

  it('WH-1: is halved until the event that fails is alone; that one is set aside, and tried again later', async () => {
    const scene = await booksScene();
    await scene.events.emitMany(names(7).map((p) => moved(p)));
    broken(scene, { onPoison: 'set aside' });
    await until('the others are told', async () => (await told(scene)).length === 6);
    expect(await told(scene)).toEqual(names(7).filter((name) => name !== 'P-3'));
    const aside = () => scene.rows<{ tries: number }>('select tries from tallyman_events.set_aside');
    expect(await aside()).toEqual([{ tries: 1 }]);
    await scene.rows('update tallyman_events.set_aside set retry_at = now()');
    await until('it is tried again', async () => (await aside())[0]?.tries === 2);
    await scene.rows(
      `update tallyman_events.events set aggregate_id = 'P-3 fixed' where aggregate_id = 'P-3'`,
    );
    await scene.rows('update tallyman_events.set_aside set retry_at = now()');
    await until('it is told', async () => (await told(scene)).length === 7);
    expect((await told(scene)).at(-1)).toBe('P-3 fixed');
    expect(await aside()).toEqual([]);
  });

  it('comes again as long as it is not said otherwise', async () => {
    const scene = await booksScene();
    await scene.events.emitMany(names(7).map((p) => moved(p)));
    broken(scene, { batch: 2 });
    await until('two are told', async () => (await told(scene)).length === 2);
    await scene.rows(`update tallyman_events.events set aggregate_id = 'fixed' where aggregate_id = 'P-3'`);
    await until('all are told', async () => (await told(scene)).length === 7);
  });

  it('is made smaller when it takes longer than a statement may', async () => {
    const scene = await booksScene();
    await scene.events.emitMany(names(40).map((p) => moved(p)));
    const sizes: number[] = [];
    const slow = new EventFollower({
      database: scene.tallyman.database,
      listener: 'books',
      pollMs: 20,
      handle: async (tx, { after, upTo }) => {
        const { rows } = await tx.query('select 1 from tallyman_events.events where id > $1 and id <= $2', [
          after,
          upTo,
        ]);
        sizes.push(rows.length);
        if (rows.length > 10) await tx.query(`set local statement_timeout = 10; select pg_sleep(60)`);
      },
    });
    onTestFinished(() => slow.stop());
    const positions = async () =>
      (await scene.rows<{ cursor: string }>('select cursor from tallyman_events.listeners'))[0]?.cursor;
    const start = await positions();
    await expect(slow.turn()).rejects.toThrow('statement timeout');
    await expect(slow.turn()).rejects.toThrow('statement timeout');
    await expect(slow.turn()).rejects.toThrow('statement timeout');
    expect(await slow.turn()).toBe(true);
    expect(await positions()).not.toBe(start);
    expect(sizes.at(-1)).toBeLessThanOrEqual(10);
    expect(await scene.rows('select 1 from tallyman_events.set_aside')).toEqual([]);
  });
});

describe('an event that alone takes longer than a statement may', () => {
  const books = (scene: EventScene, isSlow: () => boolean, code?: string) =>
    new EventFollower({
      database: scene.tallyman.database,
      listener: 'books',
      onPoison: 'set aside',
      handle: async (tx, { after, upTo }) => {
        const { rows } = await tx.query<{ aggregate: string }>(
          `insert into told (position, aggregate)
           select id, aggregate_id from tallyman_events.events where id > $1 and id <= $2 order by id
           returning aggregate`,
          [after, upTo],
        );
        if (!isSlow() || !rows.some(({ aggregate }) => aggregate === 'P-3')) return;
        if (code) throw Object.assign(new Error('the server goes down'), { code });
        await tx.query('set local statement_timeout = 10; select pg_sleep(60)');
      },
    });
  const aside = (scene: EventScene) =>
    scene.rows<{ tries: number }>('select tries from tallyman_events.set_aside');
  const turns = async (most: number, slow: EventFollower) => {
    for (let n = 0; n < most; n += 1) await slow.turn().catch(() => {});
  };

  it('is set aside, logged once, and tried again; the others go on', async () => {
    const scene = await booksScene();
    const logs = vi.spyOn(scene.tallyman.database.logger, 'error');
    await scene.events.emitMany(names(7).map((p) => moved(p)));
    let isSlow = true;
    const slow = books(scene, () => isSlow);
    await turns(20, slow);
    expect(await told(scene)).toEqual(names(7).filter((name) => name !== 'P-3'));
    expect(await aside(scene)).toEqual([{ tries: 1 }]);
    await scene.events.emit(moved('P-7'));
    await scene.rows('update tallyman_events.set_aside set retry_at = now()');
    await turns(2, slow);
    expect((await told(scene)).at(-1)).toBe('P-7');
    expect(await aside(scene)).toEqual([{ tries: 2 }]);
    expect(logs.mock.calls).toEqual([
      [
        expect.objectContaining({
          listener: 'books',
          advice: expect.stringContaining('set retry_at = now()'),
        }),
        expect.stringContaining('set aside'),
      ],
    ]);
    isSlow = false;
    await scene.rows('update tallyman_events.set_aside set retry_at = now()');
    await turns(1, slow);
    expect((await told(scene)).at(-1)).toBe('P-3');
    expect(await aside(scene)).toEqual([]);
  });

  it('is not set aside if it was slow once, or if the database goes down', async () => {
    const scene = await booksScene();
    await scene.events.emitMany(names(7).map((p) => moved(p)));
    for (const code of ['57P01', '40P01']) {
      const failing = books(scene, () => true, code);
      await turns(10, failing);
    }
    expect(await told(scene)).toEqual([]);
    let slowLeft = 7;
    const slowForAWhile = books(scene, () => {
      slowLeft -= 1;
      return slowLeft >= 0;
    });
    await turns(20, slowForAWhile);
    expect(await told(scene)).toEqual(names(7));
    expect(await aside(scene)).toEqual([]);
  });

  it('leaves what earlier events left behind for later, if that takes too long', async () => {
    const scene = await booksScene();
    await scene.events.emitMany(names(3).map((p) => moved(p)));
    let tries = 0;
    const seen: string[] = [];
    const slow = new EventFollower({
      database: scene.tallyman.database,
      listener: 'books',
      onPoison: 'set aside',
      handle: async (_, { upTo }) => void seen.push(upTo),
      leftovers: {
        exist: async () => true,
        handle: async (tx) => {
          tries += 1;
          await tx.query('set local statement_timeout = 10; select pg_sleep(60)');
        },
      },
    });
    expect(await slow.turn()).toBe(true);
    expect(await slow.turn()).toBe(false);
    expect({ tries, seen: seen.length }).toEqual({ tries: 1, seen: 1 });
  });
});

describe('purging', () => {
  it('deletes what is old, not before every listener has passed it, and not what one still needs', async () => {
    const scene = await booksScene();
    const { events, rows } = scene;
    await events.emitMany(names(10).map((p) => moved(p)));
    await rows(
      `update tallyman_events.events set created_at = now() - interval '2 days' where aggregate_id <> 'P-9'`,
    );
    const keepMs = 86_400_000;
    expect(await events.purge({ keepMs })).toBe(0);
    await follower(scene);
    await until('all are told', async () => (await told(scene)).length === 10);
    await rows(`create function needed(bigint[]) returns bigint[] language sql as
      $$ select array_agg(id) from tallyman_events.events where id = any ($1) and aggregate_id = 'P-4' $$`);
    await rows(`select tallyman_events.listen('hoarder', 'needed(bigint[])')`);
    expect(await events.purge({ keepMs })).toBe(8);
    const left = (await events.list()).events.map(({ aggregateId }) => aggregateId);
    expect(left).toEqual(['P-4', 'P-9']);
    expect(await events.purge({ keepMs })).toBe(0);
  });
});
