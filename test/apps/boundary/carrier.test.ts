import { expect, onTestFinished, test } from 'vitest';
import { Carrier, type CarrierState } from '../../../src/apps/boundary/handoff/carrier.ts';
import type { StreamId } from '../../../src/apps/boundary/store/store.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { LockSession } from '../../../src/engine/locks/lock-session.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { pause } from '../../../src/engine/resilience/deadline.ts';
import { until } from '../../support/until.ts';
import { boundaryDatabase } from './support.ts';

const stream: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

/** As one process has them. */
function locksOn(database: Database): LockSession {
  const locks = new LockSession(database, 'stream locks');
  onTestFinished(() => locks.stop());
  return locks;
}

test('BND-8: one process of a node carries a stream; another takes over when its connection is lost, or when it stops', async () => {
  const { url, database } = await boundaryDatabase();
  const another = await Database.connect({ url });
  onTestFinished(() => another.close());
  let carrying = 0;
  let most = 0;
  const carrier = (on: Database): Carrier => {
    const made = new Carrier({
      database: on,
      locks: locksOn(on),
      stream,
      logger: silentLogger,
      standbyMs: 20,
      carry: async (_waitMs, signal) => {
        carrying += 1;
        most = Math.max(most, carrying);
        await pause(5, signal);
        carrying -= 1;
        return 0;
      },
    });
    onTestFinished(() => made.stop());
    made.start();
    return made;
  };
  const first = carrier(database);
  await until('the first one carries', () => first.state === 'carrying');
  const second = carrier(another);
  const holders = async (): Promise<number[]> => {
    const { rows } = await another.query<{ pid: number }>(
      `select pid from pg_locks where locktype = 'advisory' and granted
          and database = (select oid from pg_database where datname = current_database())`,
    );
    return rows.map(({ pid }) => pid);
  };
  const [pid] = await holders();
  await until('the second one has asked for the lock', () => second.state !== 'waiting');
  expect([second.state, most]).toEqual(['standby', 1]);
  // As when its process dies: another connection has the lock, of either process.
  await another.query('select pg_terminate_backend($1)', [pid]);
  await until('the lock has another holder', async () => {
    const [now] = await holders();
    return now !== undefined && now !== pid;
  });
  await until('one of them knows that it carries', () => [first.state, second.state].includes('carrying'));
  await first.stop();
  await until('the second one carries', () => second.state === 'carrying');
  const { rows: modes } = await database.query('select mode, trouble from boundary.handoffs');
  expect(modes).toEqual([{ mode: 'normal', trouble: null }]);
});

test('BND-8: the streams of a process share one session; when it is lost all of them stop, and another process takes over', async () => {
  const { url, database } = await boundaryDatabase();
  const carriersOn = async (standbyMs: number) => {
    const on = await Database.connect({ url });
    onTestFinished(() => on.close());
    const locks = locksOn(on);
    return ['plant-b', 'plant-c', 'plant-d'].map((to) => {
      const made = new Carrier({
        database: on,
        locks,
        stream: { ...stream, to },
        logger: silentLogger,
        standbyMs,
        carry: async (_waitMs, signal) => {
          await pause(5, signal);
          return 0;
        },
      });
      onTestFinished(() => made.stop());
      made.start();
      return made;
    });
  };
  const isIn = (carriers: readonly Carrier[], state: CarrierState): boolean =>
    carriers.every((each) => each.state === state);
  // It does not ask again within the test.
  const first = await carriersOn(60_000);
  await until('the first process carries', () => isIn(first, 'carrying'));
  const second = await carriersOn(20);
  await until('the second process stands by', () => isIn(second, 'standby'));
  const { rows: sessions } = await database.query<{ pid: number; locks: number }>(
    `select pid, (select count(*)::int from pg_locks l where l.pid = a.pid and locktype = 'advisory' and granted) as locks
       from pg_stat_activity a
      where datname = current_database() and application_name in ('stream locks', 'tallyman exclusive section')
      order by locks`,
  );
  expect(sessions.map(({ locks }) => locks)).toEqual([0, 3]);
  // A stream that is stopped goes alone.
  await first[0]?.stop();
  await until('the second process carries it', () => second[0]?.state === 'carrying');
  expect([first[1]?.state, second[1]?.state]).toEqual(['carrying', 'standby']);
  await database.query('select pg_terminate_backend($1)', [sessions[1]?.pid]);
  await until('the second process carries all', () => isIn(second, 'carrying'));
  await until('the first one has stopped', () => isIn(first, 'waiting'));
});
