import { expect, it, onTestFinished } from 'vitest';
import { EventFollower } from '../../src/events/follower.ts';
import { until } from '../support/engine.ts';
import { type EventScene, eventScene, moved } from './support.ts';

/*
 * Followers are notified of commits. To show that no poll is needed, it takes longer than the test.
 */
const never = 600_000;

async function follower(scene: EventScene, listener: string) {
  await scene.rows(`select tallyman_events.listen('${listener}')`);
  const seen: string[] = [];
  const started = new EventFollower({
    database: scene.tallyman.database,
    listener,
    pollMs: never,
    handle: async (tx, { after, upTo }) => {
      const { rows } = await tx.query<{ name: string }>(
        'select aggregate_id as name from tallyman_events.events where id > $1 and id <= $2 order by id',
        [after, upTo],
      );
      seen.push(...rows.map(({ name }) => name));
    },
  });
  started.start();
  onTestFinished(() => started.stop());
  return seen;
}

const waiting = async ({ rows }: EventScene): Promise<number> => {
  const [found] = await rows<{ count: string }>(
    `select count(*) from pg_locks where locktype = 'advisory' and classid::bigint >> 16 = 29798 and granted
        and database = (select oid from pg_database where datname = current_database())`,
  );
  return Number(found?.count);
};

/**
 * When each follower that waits began to. One that has just handled a batch still has the lock for a moment, and gives it back before it
 * looks again: only a new beginning says that it is notified of what commits from now on.
 */
const beginnings = async ({ rows }: EventScene): Promise<string[]> => {
  const found = await rows<{ began: string }>(
    `select pid || ' ' || query_start as began from pg_stat_activity
      where application_name = 'tallyman events' and datname = current_database()
        and query = 'select tallyman_events.start_waiting()' and state = 'idle'`,
  );
  return found.map(({ began }) => began);
};

it('WH-1: a commit wakes the followers of every process, without a poll', async () => {
  const scene = await eventScene();
  const one = await follower(scene, 'one');
  const two = await follower(scene, 'two');
  await until('both wait', async () => (await waiting(scene)) === 2);
  const before = await beginnings(scene);
  await scene.events.emit(moved('by the library'));
  await until('both have it', () => one.length === 1 && two.length === 1);
  await until('both wait again', async () => {
    const now = await beginnings(scene);
    return now.length === 2 && now.every((began) => !before.includes(began));
  });
  // Another process, in SQL, in a transaction with more than one event.
  const other = await scene.tallyman.database.dedicated('another process');
  onTestFinished(() => other.end());
  await other.query('begin');
  await other.query(
    `select tallyman_events.emit('a', 't', 'first'), tallyman_events.emit('a', 't', 'second')`,
  );
  await other.query('commit');
  await until('both have them', () => one.length === 3 && two.length === 3);
  expect(one).toEqual(['by the library', 'first', 'second']);
  expect(two).toEqual(one);
});

it('WH-1: who emits notifies only while a follower waits, and one open transaction at a time', async () => {
  const scene = await eventScene();
  const heard: string[] = [];
  const listener = await scene.tallyman.database.dedicated('listens');
  onTestFinished(() => listener.end());
  listener.on('notification', ({ payload }) => heard.push(payload ?? ''));
  await listener.query('listen tallyman_events');
  /** Notifications come in the order of commits: once this one is here, so are those before it. */
  const settled = async (): Promise<number> => {
    await scene.rows(`select pg_notify('tallyman_events', 'the last one')`);
    await until('it is here', () => heard.includes('the last one'));
    return heard.splice(0).length - 1;
  };
  for (let n = 0; n < 20; n += 1) await scene.events.emit(moved(`P-${n}`));
  expect(await settled()).toBe(0);
  // A follower that waits, and does not look.
  const idle = await scene.tallyman.database.dedicated('waits');
  onTestFinished(() => idle.end());
  await idle.query('select tallyman_events.start_waiting()');
  const open = await scene.tallyman.database.dedicated('stays open');
  onTestFinished(() => open.end());
  await open.query('begin');
  await open.query(`select tallyman_events.emit('a', 't', 'open')`);
  for (let n = 0; n < 5; n += 1) await scene.events.emit(moved(`P-${n}`));
  expect(await settled()).toBe(0);
  await open.query('commit');
  expect(await settled()).toBe(1);
  await idle.query('select tallyman_events.stop_waiting()');
  await scene.events.emit(moved('P-1'));
  expect(await settled()).toBe(0);
});

it('WH-1: a follower whose connection for notifications is cut is notified again once it is back', async () => {
  const scene = await eventScene();
  const seen = await follower(scene, 'one');
  await until('it waits', async () => (await waiting(scene)) === 1);
  const [before] = await scene.rows<{ pid: number }>(
    `select pid from pg_stat_activity where application_name = 'tallyman events' and datname = current_database()`,
  );
  await scene.rows('select pg_terminate_backend($1)', [before?.pid]);
  await until('another connection waits', async () => {
    const rows = await scene.rows<{ pid: number }>(
      `select l.pid from pg_locks l join pg_stat_activity a using (pid)
        where l.locktype = 'advisory' and l.classid::bigint >> 16 = 29798 and l.granted
          and a.application_name = 'tallyman events' and a.datname = current_database()`,
    );
    return rows.length === 1 && rows[0]?.pid !== before?.pid;
  });
  await scene.events.emit(moved('P-1'));
  await until('it has it', () => seen.length === 1);
});
