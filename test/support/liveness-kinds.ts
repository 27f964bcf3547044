import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import {
  type AnyKind,
  defineKind,
  type JobContext,
  type Kind,
  PermanentError,
} from '../../src/engine/index.ts';

/** What handlers leave behind. No constraint refuses a second row: a repetition must be seen, not prevented. */
export const witnessTables = `
  create table starts (
    id bigserial primary key, job bigint not null, kind text not null, lane text, seq bigint, i integer not null,
    worker text not null, attempt integer not null, at timestamptz not null default clock_timestamp());
  create index on starts (job);
  create table finishes (
    id bigserial primary key, job bigint not null, i integer not null, worker text not null, aborted boolean not null,
    at timestamptz not null default clock_timestamp());
  create table effects (
    id bigserial primary key, job bigint not null, lane text, i integer not null, worker text not null,
    at timestamptz not null default clock_timestamp());
  create table marks (
    id bigserial primary key, job bigint not null, worker text not null, mark text not null)`;

/** The exit code of a process that a job has ended: no other end of a process looks like it. */
export const poisoned = 86;

/** A job tells its handler what to do. */
export interface Step {
  readonly i: number;
  readonly act?:
    | 'pass' // return, after `ms`
    | 'quiet' // the same without a row in `starts`
    | 'hang once' // the first run never ends, later ones behave as `pass`
    | 'exit' // end the process, after `ms`
    | 'throw' // an ordinary error, after `ms`
    | 'refuse' // a PermanentError, after `ms`
    | 'commit' // an effect with ctx.commit, after `ms`
    | 'exit, commit and exit' // end the process; in later runs an effect with ctx.commit, then the same
    | 'hold commit once'; // the first run keeps the transaction of ctx.commit open until there is a mark `go on`
  readonly ms?: number;
}

/** A kind as it is told to a worker process. All kinds have the same handler. */
export interface KindSpec {
  readonly name: string;
  readonly queue?: string;
  readonly priority?: 0 | 1 | 2 | 3;
  readonly maxAttempts?: number;
  readonly backoffMs?: readonly [low: number, high: number];
  readonly policy?: 'block' | 'skip';
}

export interface Witness {
  /** Connections that are none of the engine's. */
  readonly pool: pg.Pool;
  readonly worker: () => string;
}

/** Without a witness the kinds can only be enqueued. */
export function stepKind(spec: KindSpec, witness?: Witness): Kind<Step> {
  const [low, high] = spec.backoffMs ?? [0, 50];
  return defineKind<Step>({
    name: spec.name,
    ...(spec.queue !== undefined && { queue: spec.queue }),
    ...(spec.priority !== undefined && { priority: spec.priority }),
    retry: {
      ...(spec.maxAttempts !== undefined && { maxAttempts: spec.maxAttempts }),
      backoff: (attempt) => Math.min(high, low + attempt * 10),
    },
    lane: { policy: spec.policy ?? 'skip' },
    handler: (step, ctx) => {
      if (!witness) throw new Error('these kinds are for enqueueing only');
      return run(step, ctx, witness);
    },
  });
}

export const stepKinds = (specs: readonly KindSpec[], witness: Witness): AnyKind[] =>
  specs.map((spec) => stepKind(spec, witness));

async function run(step: Step, ctx: JobContext, { pool, worker }: Witness): Promise<void> {
  const { act = 'pass', i, ms = 0 } = step;
  if (act === 'quiet') {
    if (ms > 0) await sleep(ms);
    return;
  }
  const { rows } = await pool.query<{ before: number }>(
    `insert into starts (job, kind, lane, seq, i, worker, attempt) values ($1, $2, $3, $4, $5, $6, $7)
     returning (select count(*)::integer from starts where job = $1) as before`,
    [ctx.id, ctx.kind, ctx.lane, ctx.seq, i, worker(), ctx.attempt],
  );
  const isFirst = rows[0]?.before === 0;
  if (act === 'hang once' && isFirst) await new Promise(() => {});
  if (ms > 0) await sleep(ms);
  if (act === 'exit' || (act === 'exit, commit and exit' && isFirst)) process.exit(poisoned);
  if (act === 'throw') throw new Error(`thrown on purpose by ${ctx.id}`);
  if (act === 'refuse') throw new PermanentError('REFUSED', `refused on purpose by ${ctx.id}`);
  const mark = (text: string) =>
    pool.query('insert into marks (job, worker, mark) values ($1, $2, $3)', [ctx.id, worker(), text]);
  if (act === 'commit' || act === 'exit, commit and exit' || act === 'hold commit once') {
    const committed = ctx.commit(async (tx) => {
      await tx.query('insert into effects (job, lane, i, worker) values ($1, $2, $3, $4)', [
        ctx.id,
        ctx.lane,
        i,
        worker(),
      ]);
      if (act === 'hold commit once' && isFirst) {
        await mark('in commit');
        while ((await pool.query(`select from marks where mark = 'go on'`)).rows.length === 0)
          await sleep(20);
      }
    });
    await (act === 'hold commit once' ? committed.finally(() => mark('commit is over')) : committed);
  }
  if (act === 'exit, commit and exit') process.exit(poisoned);
  await pool.query('insert into finishes (job, i, worker, aborted) values ($1, $2, $3, $4)', [
    ctx.id,
    i,
    worker(),
    ctx.signal.aborted,
  ]);
}
