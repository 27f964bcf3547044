import { expect, onTestFinished, test } from 'vitest';
import { Carrier } from '../../../src/apps/boundary/handoff/carrier.ts';
import type { StreamId } from '../../../src/apps/boundary/store/store.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { pause } from '../../../src/engine/resilience/deadline.ts';
import { until } from '../../support/until.ts';
import { boundaryDatabase } from './support.ts';

const stream: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

test('BND-8: one process of a node carries a stream; another takes over when its connection is lost, or when it stops', async () => {
  const { url, database } = await boundaryDatabase();
  const another = await Database.connect({ url });
  onTestFinished(() => another.close());
  let carrying = 0;
  let most = 0;
  const carrier = (on: Database): Carrier => {
    const made = new Carrier({
      database: on,
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
