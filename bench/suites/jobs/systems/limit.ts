import { Client, Pool } from 'pg';
import type { Handler, OpenSystem, Payload, System } from '../system.ts';

/**
 * Not a job system: what is left if one takes away leases, retries, fencing and fairness, to show where
 * PostgreSQL itself ends. One consumer deletes batches without claiming them; what it holds is lost if it
 * dies. One partial index; litter is outside it.
 */
const SCHEMA = `
  create table jobs (id bigserial, ready boolean not null, index int not null, lane text);
  create index jobs_ready on jobs (id) where ready;
`;
const INSERT = `insert into jobs (ready, index, lane)
  select true, index, lane from unnest($1::int[], $2::text[]) as job (index, lane)`;
const INSERT_AND_NOTIFY = `with job as (insert into jobs (ready, index) values (true, $1) returning index)
  select pg_notify('jobs', index::text) from job`;
const TAKE = `delete from jobs
  where ready and id = any (array(select id from jobs where ready order by id limit $1))
  returning id, index, lane`;

const BATCH = 1_000;
const IN_FLIGHT = 2;

async function open(url: string, wakeup: boolean): Promise<OpenSystem> {
  const pool = new Pool({ connectionString: url, max: 4 });
  const { rows } = await pool.query(`select to_regclass('jobs') is not null as there`);
  if (rows[0]?.there !== true) await pool.query(SCHEMA);
  const insert = async (payloads: readonly Payload[]) => {
    const values = [payloads.map((job) => job.index), payloads.map((job) => job.lane ?? null)];
    await pool.query({ name: 'insert', text: INSERT, values });
  };
  const grouped = groupCommit(insert);
  const notify = async ({ index }: Payload) => {
    await pool.query({ name: 'notify', text: INSERT_AND_NOTIFY, values: [index] });
  };
  return {
    enqueue: wakeup ? notify : grouped,
    enqueueMany: insert,
    work: (handler) => (wakeup ? listen(url, pool, handler) : consume(pool, handler)),
    async unfinished() {
      const { rows } = await pool.query<{ count: number }>(
        'select count(*)::int as count from jobs where ready',
      );
      return rows[0]?.count ?? Number.NaN;
    },
    async litter(dead, future) {
      await pool.query('insert into jobs (ready, index) select false, -1 from generate_series(1, $1)', [
        dead + future,
      ]);
    },
    close: () => pool.end(),
  };
}

/** What arrives while two commits are under way shares the next one. */
function groupCommit(insert: (payloads: readonly Payload[]) => Promise<void>) {
  let gathered: { payload: Payload; resolve: () => void; reject: (error: unknown) => void }[] = [];
  let inFlight = 0;
  const flush = async () => {
    if (inFlight >= IN_FLIGHT || gathered.length === 0) return;
    const batch = gathered;
    gathered = [];
    inFlight += 1;
    try {
      await insert(batch.map(({ payload }) => payload));
      for (const { resolve } of batch) resolve();
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      inFlight -= 1;
      void flush();
    }
  };
  return (payload: Payload) =>
    new Promise<void>((resolve, reject) => {
      gathered.push({ payload, resolve, reject });
      // After the present burst of callers, so that they share a batch.
      if (gathered.length === 1) setImmediate(flush);
    });
}

/** Takes batches in order until there is nothing left; a job of a lane never runs beside another. */
async function consume(pool: Pool, handler: Handler): Promise<() => Promise<void>> {
  const loop = (async () => {
    for (;;) {
      const { rows } = await pool.query<{ id: string; index: number; lane: string | null }>({
        name: 'take',
        text: TAKE,
        values: [BATCH],
      });
      if (rows.length === 0) return;
      for (const { index, lane } of rows) {
        const running = handler(lane === null ? { index } : { index, lane });
        if (running !== undefined) await running;
      }
    }
  })();
  return () => loop;
}

/** The bare round trip: the notification itself carries the job, its row is deleted afterwards. */
async function listen(url: string, pool: Pool, handler: Handler): Promise<() => Promise<void>> {
  const client = new Client({ connectionString: url });
  await client.connect();
  client.on('notification', async ({ payload }) => {
    const index = Number(payload);
    await handler({ index });
    await pool.query({ name: 'done', text: 'delete from jobs where ready and index = $1', values: [index] });
  });
  await client.query('listen jobs');
  return () => client.end();
}

export const limit: System = {
  store: 'postgres',
  bulkChunk: 5_000,
  skips: (workload) => !/^(enqueue|drain|wakeup|lanes$|lane-deep$)/.test(workload),
  open: (url, workload) => open(url, workload.startsWith('wakeup')),
};
