import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Queryable } from '../../src/engine/database/database.ts';
import { messageOf } from '../../src/engine/errors.ts';
import type { JobContext } from '../../src/engine/jobs/context.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';

/** What handlers leave behind. No constraint would refuse a second effect: it must be seen, not prevented. */
export const witnessTables = `
  create table effects (
    id bigserial primary key, job bigint not null, lane text, i integer not null, worker text not null,
    seen integer,       -- the greatest i of this lane that was committed when this one was written
    behind integer,     -- jobs of this lane that stood before this one and had not ended
    at timestamptz not null default clock_timestamp());
  create index on effects (lane, i);
  create index on effects (job);
  create table runs (
    id bigserial primary key, job bigint not null, lane text, i integer not null, worker text not null,
    attempt integer not null, seen integer, at timestamptz not null default clock_timestamp());
  create index on runs (job);
  create table notes (
    id bigserial primary key, job bigint not null, i integer not null, worker text not null, note text not null)`;

export interface Step {
  /** Its number in its lane, from 0; without a lane any number. */
  readonly i: number;
  /** How long the handler takes. Default 0. */
  readonly ms?: number;
}

export interface PausedStep extends Step {
  readonly how: 'plain' | 'commit' | 'in commit' | 'until told';
  /** The first run goes on when this file is there. */
  readonly until?: string;
  /** Later runs go on when this file is there. */
  readonly againUntil?: string;
}

/** A file can be seen without a connection: a process that has just been continued sees it before it learns anything else. */
async function appears(path: string | undefined): Promise<void> {
  while (path !== undefined && !existsSync(path)) await sleep(10);
}

export interface Recorder {
  readonly database: Queryable;
  /** Known once the worker is made, which is after its kinds. */
  readonly worker: () => string;
}

/** Storms fail handlers many times; that must use up no job. */
const patient = { maxAttempts: 1000, backoff: () => 50 };

/**
 * The kinds that both sides know: the test enqueues them, the worker processes run them.
 * Without a recorder they can only be enqueued.
 */
export function chaosKinds(recorder?: Recorder) {
  const { database, worker } = recorder ?? {
    database: { query: () => Promise.reject(new Error('these kinds are for enqueueing only')) },
    worker: () => '',
  };

  const ran = (step: Step, ctx: JobContext) =>
    database.query(
      `insert into runs (job, lane, i, worker, attempt, seen)
       select $1, $2, $3, $4, $5, (select max(e.i) from effects e where e.lane = $2)`,
      [ctx.id, ctx.lane, step.i, worker(), ctx.attempt],
    );
  const note = (step: Step, ctx: JobContext, text: string) =>
    database.query('insert into notes (job, i, worker, note) values ($1, $2, $3, $4)', [
      ctx.id,
      step.i,
      worker(),
      text,
    ]);
  const effectText = `
    insert into effects (job, lane, i, worker, seen, behind)
    select $1, $2, $3, $4, (select max(e.i) from effects e where e.lane = $2),
           (select count(*) from tallyman.jobs j
             where j.lane = (select l.id from tallyman.lanes l
                              where l.tenant_id = 'default' and l.queue = 'default' and l.key = $2)
               and j.pos < $5::bigint)`;
  const effectValues = (step: Step, ctx: JobContext) => [ctx.id, ctx.lane, step.i, worker(), ctx.seq];
  const effect = (tx: Queryable, step: Step, ctx: JobContext) =>
    tx.query(effectText, effectValues(step, ctx));

  /** Effect and completion in one commit: exactly once. By a function, and by a statement that shares its commit. */
  const once = defineKind<Step>({
    name: 'once',
    retry: patient,
    handler: async (step, ctx) => {
      if (step.ms) await sleep(step.ms);
      if (step.i % 2 === 0) await ctx.commit((tx) => effect(tx, step, ctx));
      else await ctx.commit(effectText, effectValues(step, ctx));
    },
  });

  /** At least once: a row for each run. */
  const plain = defineKind<Step>({
    name: 'plain',
    retry: patient,
    handler: async (step, ctx) => {
      await ran(step, ctx);
      if (step.ms) await sleep(step.ms);
    },
  });

  /** The same with the attempts that everybody gets. */
  const ordinary = defineKind<Step>({
    name: 'ordinary',
    retry: { maxAttempts: 5, backoff: () => 50 },
    handler: plain.handler,
  });

  /** Kills whoever runs it. */
  const poison = defineKind<Step>({
    name: 'poison',
    retry: { maxAttempts: 3, backoff: () => 50 },
    handler: async (step, ctx) => {
      await ran(step, ctx);
      process.kill(process.pid, 'SIGKILL');
      await sleep(60_000);
    },
  });

  /** Run by a worker that is about to be paused, and again by another. */
  const paused = defineKind<PausedStep>({
    name: 'paused',
    retry: { maxAttempts: 5, backoff: () => 0 },
    handler: async (step, ctx) => {
      const { rows } = await database.query('select 1 from runs where job = $1', [ctx.id]);
      const isFirst = rows.length === 0;
      const pause = () => appears(isFirst ? step.until : step.againUntil);
      await ran(step, ctx);
      if (step.how === 'plain') {
        await pause();
      } else if (step.how === 'until told') {
        if (!isFirst || step.until === undefined) return;
        if (!ctx.signal.aborted)
          await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
        await note(step, ctx, `signal: ${(ctx.signal.reason as Error).name}`);
      } else {
        try {
          if (step.how === 'commit') await pause();
          await ctx.commit(async (tx) => {
            await effect(tx, step, ctx);
            if (step.how === 'in commit') await pause();
          });
        } catch (error) {
          await note(step, ctx, `refused: ${error instanceof Error ? error.name : messageOf(error)}`);
          throw error;
        }
      }
    },
  });

  return { once, plain, ordinary, poison, paused };
}

export type ChaosKinds = ReturnType<typeof chaosKinds>;
