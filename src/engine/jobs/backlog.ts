import type { Database, Queryable } from '../database/database.ts';

/*
 * Counts the backlog of queues at a bounded cost, except for claimed jobs, which are looked up one by one.
 *
 * Counting a million jobs takes a second and reads the whole table. So every count stops at `countLimit`: up to there
 * it is exact, from the index that the workers use. A count that was cut short is estimated from a random sample of the
 * table's pages, at most `samplePages`; the larger of the two numbers is reported. A sample alone is not enough: after a
 * large backlog the table is mostly empty pages, and the few jobs left would be missed or multiplied.
 * Ready jobs are counted per queue, so a small queue beside a large one is exact. Waiting jobs of all queues are in one
 * index: if there are too many in total, each queue's number is an estimate.
 *
 * A job is
 *   running   if a claim lists it, or its lane and it is the head. (The jobs a worker has prefetched are among them.)
 *   ready     if a worker could claim it now, or would run it next in its lane
 *   waiting   if it is not due, or is in a lane that is blocked or whose head is not due
 */

export interface BacklogOptions {
  /** Counts are exact up to here. */
  readonly countLimit: number;
  /** Pages of 8 KiB read for an estimate. */
  readonly samplePages: number;
  readonly timeoutMs: number;
}

export interface QueueBacklog {
  ready: number;
  running: number;
  waiting: number;
  blockedLanes: number;
  /** 0 if nothing is ready. */
  oldestReadySeconds: number;
}

export interface DeadLetterCount {
  readonly queue: string;
  readonly kind: string;
  readonly count: number;
}

export interface Backlog {
  readonly at: Date;
  readonly queues: ReadonlyMap<string, QueueBacklog>;
  readonly deadLetters: readonly DeadLetterCount[];
}

export function lookAtBacklog(database: Database, options: BacklogOptions): Promise<Backlog> {
  return database.transaction(async (tx) => {
    await tx.query('set transaction isolation level repeatable read, read only');
    // As in claim: the table may be empty at one ANALYZE and full at the next; only the indexes are right for both.
    await tx.query(
      `select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
              set_config('jit', 'off', true), set_config('statement_timeout', $1, true)`,
      [String(options.timeoutMs)],
    );
    const limit = options.countLimit;
    const queues = new Map<string, QueueBacklog>();
    const readyCutShort = new Set<string>();
    for (const row of await freeJobs(tx, limit)) {
      if (row.ready > limit) readyCutShort.add(row.queue);
      queues.set(row.queue, {
        ready: Math.min(row.ready, limit),
        running: row.running,
        waiting: 0,
        blockedLanes: 0,
        oldestReadySeconds: row.oldest,
      });
    }
    for (const row of await jobsInReadyLanes(tx, limit)) {
      const queue = queues.get(row.queue);
      if (!queue) continue;
      if (row.ready > limit) readyCutShort.add(row.queue);
      queue.ready += Math.min(row.ready, limit);
      queue.running += row.running;
      queue.oldestReadySeconds = Math.max(queue.oldestReadySeconds, row.oldest);
    }
    const waiting = await waitingJobs(tx, limit);
    const waitingCutShort = waiting.reduce((sum, row) => sum + row.jobs, 0) > limit;
    for (const row of waiting) {
      const queue = queues.get(row.queue);
      if (queue) queue.waiting = row.jobs;
    }
    for (const row of await blockedLanes(tx, limit)) {
      const queue = queues.get(row.queue);
      if (queue) queue.blockedLanes = row.lanes;
    }
    if (readyCutShort.size > 0 || waitingCutShort)
      for (const row of await sampledJobs(tx, options.samplePages)) {
        const queue = queues.get(row.queue);
        if (!queue) continue;
        if (readyCutShort.has(row.queue)) queue.ready = Math.max(queue.ready, row.ready - queue.running);
        if (waitingCutShort) queue.waiting = Math.max(queue.waiting, row.waiting);
      }
    return { at: new Date(), queues, deadLetters: await deadLetters(tx, options) };
  });
}

/**
 * Relies on jobs_ready and claims_of_stream. Below a stream's floor every job is claimed or gone, so the count starts
 * there and skips the remains of finished jobs. The oldest job is the first in line, because positions are drawn when jobs
 * become ready: the first from the cursor on, or one below it that committed late.
 */
async function freeJobs(tx: Queryable, limit: number) {
  const { rows } = await tx.query<{ queue: string; ready: number; running: number; oldest: number }>(
    `with held as materialized (
       select c.stream, p.pos
         from tallyman.streams s
         join tallyman.claims c on c.stream = s.id and c.token >= s.first_token, unnest(c.positions) as p (pos)
     ), running as materialized (
       select j.stream, count(*) as jobs, count(*) filter (where j.pos >= s.floor) as above_floor
         from held h
         join tallyman.streams s on s.id = h.stream
         join tallyman.jobs j on j.stream = h.stream and j.lane is null and j.pos = h.pos
        group by j.stream
     ), counted as materialized (
       select s.id, s.queue, s.cursor, s.floor, coalesce(r.jobs, 0) as running,
              (select count(*)
                 from (select from tallyman.jobs j
                        where j.stream = s.id and j.lane is null and j.pos >= s.floor
                        limit $1 + 1 + coalesce(r.above_floor, 0)) found) - coalesce(r.above_floor, 0) as ready
         from tallyman.streams s left join running r on r.stream = s.id
     ), of_stream as (
       select c.*, case when c.ready > 0 then coalesce(
                (select j.scheduled_at from tallyman.jobs j
                  where j.stream = c.id and j.lane is null and j.pos >= c.cursor
                    and j.pos not in (select h.pos from held h)
                  order by j.pos limit 1),
                (select j.scheduled_at from tallyman.jobs j
                  where j.stream = c.id and j.lane is null and j.pos >= c.floor
                    and j.pos not in (select h.pos from held h)
                  order by j.pos limit 1)) end as oldest
         from counted c
     )
     select q.name as queue, coalesce(sum(o.ready), 0)::integer as ready,
            coalesce(sum(o.running), 0)::integer as running,
            coalesce(greatest(0, date_part('epoch', clock_timestamp() - min(o.oldest))), 0) as oldest
       from tallyman.queues q left join of_stream o on o.queue = q.name
      group by q.name`,
    [limit],
  );
  return rows;
}

/** Relies on lanes_ready, claims_of_stream and jobs_in_lane. The head of a claimed lane is running; the jobs behind it are ready. */
async function jobsInReadyLanes(tx: Queryable, limit: number) {
  const { rows } = await tx.query<{ queue: string; ready: number; running: number; oldest: number }>(
    `with held as materialized (
       select c.stream, p.pos
         from tallyman.streams s
         join tallyman.claims c on c.stream = s.id and c.token >= s.first_token, unnest(c.positions) as p (pos)
        where exists (select 1 from tallyman.lanes l where l.stream = s.id and l.pos is not null)
     ), running as materialized (
       select l.id, l.queue, l.floor from held h join tallyman.lanes l on l.stream = h.stream and l.pos = h.pos
        where exists (select 1 from tallyman.jobs j where j.lane = l.id and j.pos >= l.floor)
     )
     select q.name as queue, w.ready::integer as ready,
            (select count(*) from running r where r.queue = q.name)::integer as running,
            coalesce(greatest(0, date_part('epoch', clock_timestamp() - w.oldest)), 0) as oldest
       from tallyman.queues q,
            lateral (select count(*) as ready, min(found.scheduled_at) as oldest
                       from (select j.scheduled_at
                               from (select l.id, l.floor, 0 as heads
                                       from tallyman.streams s
                                       join tallyman.lanes l on l.stream = s.id and l.pos >= s.floor
                                      where s.queue = q.name and l.pos not in (select h.pos from held h)
                                     union all
                                     select r.id, r.floor, 1 from running r where r.queue = q.name) lane,
                                    lateral (select j.scheduled_at from tallyman.jobs j
                                              where j.lane = lane.id and j.pos >= lane.floor
                                              order by j.pos offset lane.heads) j
                              limit $1 + 1) found) w`,
    [limit],
  );
  return rows;
}

/** Relies on jobs_due, lanes_due, lanes_blocked and jobs_in_lane. The limit is on all queues together. */
async function waitingJobs(tx: Queryable, limit: number) {
  const { rows } = await tx.query<{ queue: string; jobs: number }>(
    `select s.queue, count(*)::integer as jobs
       from ((select j.stream from tallyman.jobs j where j.lane is null and j.pos is null
               order by j.scheduled_at limit $1 + 1)
             union all
             (select j.stream from tallyman.lanes l join tallyman.jobs j on j.lane = l.id and j.pos >= l.floor
               where l.due_at is not null limit $1 + 1)
             union all
             (select j.stream from tallyman.lanes l join tallyman.jobs j on j.lane = l.id and j.pos >= l.floor
               where l.blocked_at is not null and l.due_at is null and l.pos is null limit $1 + 1)) found
       join tallyman.streams s on s.id = found.stream
      group by s.queue`,
    [limit],
  );
  return rows;
}

/** Relies on lanes_blocked. Not estimated above the limit: ten thousand blocked lanes are enough of an alarm. */
async function blockedLanes(tx: Queryable, limit: number) {
  const { rows } = await tx.query<{ queue: string; lanes: number }>(
    `select found.queue, count(*)::integer as lanes
       from (select l.queue from tallyman.lanes l where l.blocked_at is not null limit $1) found
      group by found.queue`,
    [limit],
  );
  return rows;
}

/** Extrapolates from the sampled pages. Running jobs count as ready here: a sample cannot tell them apart. */
async function sampledJobs(tx: Queryable, pages: number) {
  const share = await shareOf(tx, 'tallyman.jobs', pages);
  const { rows } = await tx.query<{ queue: string; ready: number; waiting: number }>(
    `select s.queue, round(count(*) filter (where found.ready) / $1::real)::integer as ready,
            round(count(*) filter (where not found.ready) / $1::real)::integer as waiting
       from (select j.stream, case when j.lane is null then j.pos is not null else l.pos is not null end as ready
               from tallyman.jobs j tablesample system (100 * $1::real)
               left join tallyman.lanes l on l.id = j.lane) found
       join tallyman.streams s on s.id = found.stream
      group by s.queue`,
    [share],
  );
  return rows;
}

async function deadLetters(
  tx: Queryable,
  { countLimit, samplePages }: BacklogOptions,
): Promise<readonly DeadLetterCount[]> {
  const { rows: counted } = await tx.query<DeadLetterCount>(
    `select found.queue, found.kind, count(*)::integer as count
       from (select d.queue, d.kind from tallyman.dead_letters d order by d.id desc limit $1 + 1) found
      group by found.queue, found.kind`,
    [countLimit],
  );
  if (counted.reduce((sum, row) => sum + row.count, 0) <= countLimit) return counted;
  const { rows: sampled } = await tx.query<DeadLetterCount>(
    `select d.queue, d.kind, round(count(*) / $1::real)::integer as count
       from tallyman.dead_letters d tablesample system (100 * $1::real)
      group by d.queue, d.kind`,
    [await shareOf(tx, 'tallyman.dead_letters', samplePages)],
  );
  const largest = new Map<string, DeadLetterCount>();
  for (const row of [...counted, ...sampled]) {
    const key = JSON.stringify([row.queue, row.kind]);
    if ((largest.get(key)?.count ?? -1) < row.count) largest.set(key, row);
  }
  return [...largest.values()];
}

/** The fraction of a table that this many of its pages are. */
async function shareOf(tx: Queryable, table: string, pages: number): Promise<number> {
  const { rows } = await tx.query<{ share: number }>(
    `select least(1, $2 / greatest(1, pg_relation_size($1::regclass) / 8192.0))::double precision as share`,
    [table, pages],
  );
  return rows[0]?.share ?? 1;
}
