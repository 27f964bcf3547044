import type { Database, Queryable } from '../engine/database/database.ts';

/**
 * The books of the demo, kept apart from the engine, so that they can convict it.
 *
 *   orders    what was enqueued and has not been seen done; written in the transaction of the enqueue
 *   effects   what handlers did; written by ctx.commit. No unique key: a second effect must be able to happen, to be seen
 *   ledger    the sums
 *
 * Each audit takes the new effects and strikes out their orders. An effect without an order was done twice; an order
 * whose job is nowhere was lost; an effect whose number is below one that its lane has had was out of order.
 */
const tables = `
  create schema if not exists demo;
  create table if not exists demo.orders (
    job bigint primary key,
    tries integer not null default 0,
    -- It was seen to end otherwise: buried, failed or cancelled. A person may then discard it; that is no loss.
    ended boolean not null default false
  );
  create table if not exists demo.effects (
    id bigint generated always as identity primary key, job bigint not null, lane text, number bigint
  );
  -- Apart from each other: whoever plans locks the one, the auditor the other, and neither waits for both.
  create table if not exists demo.planned (lane text primary key, number bigint not null);
  create table if not exists demo.reached (lane text primary key, number bigint not null);
  create table if not exists demo.ledger (
    id boolean primary key default true check (id),
    enqueued bigint not null default 0, done bigint not null default 0,
    twice bigint not null default 0, disordered bigint not null default 0
  );
  insert into demo.ledger default values on conflict do nothing`;

const setUpLock = 0x7411_de30;

/** Two demos on one database may start at once. */
export async function setUpBooks(database: Database): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock($1)', [setUpLock]);
    await tx.query(tables);
  });
}

export interface Effect {
  readonly job: string;
  readonly lane?: string;
  readonly number?: number;
}

export async function recordEffect(tx: Queryable, { job, lane, number }: Effect): Promise<void> {
  await tx.query('insert into demo.effects (job, lane, number) values ($1, $2, $3)', [
    job,
    lane ?? null,
    number ?? null,
  ]);
}

export async function countTry(database: Queryable, job: string): Promise<number> {
  const { rows } = await database.query<{ tries: number }>(
    'update demo.orders set tries = tries + 1 where job = $1 returning tries',
    [job],
  );
  return rows[0]?.tries ?? 1;
}

/**
 * The next numbers of these lanes. The rows stay locked until the transaction ends, and are locked in sorted order, so
 * numbers are given in commit order, which is the order the engine promises.
 */
export async function takeNumbers(
  tx: Queryable,
  wanted: ReadonlyMap<string, number>,
): Promise<ReadonlyMap<string, number>> {
  const first = new Map<string, number>();
  for (const lane of [...wanted.keys()].sort()) {
    const { rows } = await tx.query<{ number: string }>(
      `insert into demo.planned as p (lane, number) values ($1, $2)
       on conflict (lane) do update set number = p.number + excluded.number returning number`,
      [lane, wanted.get(lane)],
    );
    first.set(lane, Number(rows[0]?.number) - (wanted.get(lane) ?? 0) + 1);
  }
  return first;
}

export async function recordOrders(tx: Queryable, jobs: readonly string[]): Promise<void> {
  await tx.query('insert into demo.orders (job) select unnest($1::bigint[])', [jobs]);
  await tx.query('update demo.ledger set enqueued = enqueued + $1', [jobs.length]);
}

export interface Balance {
  readonly enqueued: number;
  readonly done: number;
  /** Ready or in somebody's hands. */
  readonly queued: number;
  /** Failed before, and not due yet. */
  readonly retrying: number;
  readonly dead: number;
  /** Failed for good or cancelled, or discarded by a person. */
  readonly ended: number;
  readonly disordered: number;
  readonly twice: number;
  readonly lost: number;
}

/** Everything that was enqueued is somewhere, once, and was done in its order. */
export function balances(b: Balance): boolean {
  const accounted = b.done + b.queued + b.retrying + b.dead + b.ended;
  return b.disordered === 0 && b.twice === 0 && b.lost === 0 && b.enqueued === accounted;
}

export async function audit(database: Database): Promise<Balance> {
  return database.transaction(async (tx) => {
    // One auditor at a time.
    await tx.query('select from demo.ledger for update');
    await tx.query(strikeOut);
    await tx.query(noteEnded);
    const { rows } = await tx.query<Record<keyof Balance, string>>(sums);
    return Object.fromEntries(
      Object.entries(rows[0] ?? {}).map(([name, value]) => [name, Number(value)]),
    ) as unknown as Balance;
  });
}

const strikeOut = `
  with fresh as (
    delete from demo.effects returning id, job, lane, number
  ), struck as (
    delete from demo.orders o using fresh f where o.job = f.job returning o.job, o.ended
  ), steps as (
    -- What a person sent round again took a new place in its lane.
    select f.lane, f.number,
           lag(f.number, 1, coalesce(r.number, 0)) over (partition by f.lane order by f.id) as before
      from fresh f join struck s on s.job = f.job left join demo.reached r on r.lane = f.lane
     where f.lane is not null and not s.ended
  ), reached as (
    insert into demo.reached as r (lane, number) select lane, max(number) from steps group by lane
    on conflict (lane) do update set number = greatest(r.number, excluded.number)
  )
  update demo.ledger set
    done = done + (select count(*) from struck),
    twice = twice + (select count(*) from fresh) - (select count(*) from struck),
    disordered = disordered + (select count(*) from steps where number <= before)`;

const noteEnded = `
  update demo.orders o set ended = true
   where not o.ended
     and (exists (select 1 from tallyman.dead_letters d where d.id = o.job)
          or exists (select 1 from tallyman.history h where h.id = o.job and h.status <> 'SUCCEEDED'))`;

/** One statement, so one moment: a job that is done here is not also counted as queued. */
const sums = `
  with states as (
    select case when e.job is not null then 'done'
                when j.id is not null and j.attempts > 0 and j.scheduled_at > now() then 'retrying'
                when j.id is not null then 'queued'
                when d.id is not null then 'dead'
                when o.ended then 'ended'
                when exists (select 1 from tallyman.history h where h.id = o.job and h.status <> 'SUCCEEDED') then 'ended'
                else 'lost' end as state
      from demo.orders o
      left join tallyman.jobs j on j.id = o.job
      left join tallyman.dead_letters d on d.id = o.job
      left join (select distinct job from demo.effects) e on e.job = o.job
  )
  select l.enqueued,
         l.done + (select count(*) from states where state = 'done') as done,
         (select count(*) from states where state = 'queued') as queued,
         (select count(*) from states where state = 'retrying') as retrying,
         (select count(*) from states where state = 'dead') as dead,
         (select count(*) from states where state = 'ended') as ended,
         l.disordered, l.twice,
         (select count(*) from states where state = 'lost') as lost
    from demo.ledger l`;
