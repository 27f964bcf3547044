/** What the soak's two sides share: the kinds, and the tables in which handlers and the driver write down what happened. */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { defineKind, type JobContext } from '../../src/engine/index.ts';

export const soakTables = `
  drop schema if exists soak cascade;
  create schema soak;
  -- Written by handlers. No constraint: a repetition must be seen, not prevented.
  create table soak.starts (
    id bigserial primary key, job bigint not null, kind text not null, queue text not null, lane text, seq bigint,
    attempt integer not null, process integer not null, due timestamptz not null,
    at timestamptz not null default clock_timestamp());
  create table soak.effects (
    id bigserial primary key, job bigint not null, queue text not null, lane text, seq bigint);
  -- Written by the driver.
  create table soak.enqueued (job bigint primary key, effect boolean not null);
  create table soak.cancelled (job bigint primary key);
  create table soak.kills (process integer primary key, at timestamptz not null);
  create table soak.pauses (queue text not null, since timestamptz not null, until timestamptz)`;

export const soakQueues = Array.from({ length: 8 }, (_, n) => `soak-${n}`);

export interface SoakStep {
  /** How long the handler takes. */
  readonly ms: number;
  /** It fails in so many of its first attempts. */
  readonly failures: number;
}

export interface SoakSettings {
  readonly url: string;
  /** Its number among all processes of the run. */
  readonly process: number;
  readonly leaseMs: number | undefined;
}

/** Crashes and failures must use up no job: 50 attempts. */
const retry = { maxAttempts: 50, backoff: () => 150 };

export function soakKinds(witness?: { readonly pool: pg.Pool; readonly process: number }) {
  const begin = async (step: SoakStep, ctx: JobContext): Promise<void> => {
    if (!witness) throw new Error('these kinds are for enqueueing only');
    await witness.pool.query(
      `insert into soak.starts (job, kind, queue, lane, seq, attempt, process, due)
       values ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [ctx.id, ctx.kind, ctx.queue, ctx.lane, ctx.seq, ctx.attempt, witness.process, ctx.scheduledAt],
    );
    if (step.ms > 0) await sleep(step.ms);
    if (ctx.attempt <= step.failures) throw new Error(`attempt ${ctx.attempt} fails on purpose`);
  };
  /** At least once. */
  const plain = defineKind<SoakStep>({ name: 'soak-plain', queue: 'soak-0', retry, handler: begin });
  /** Exactly once. */
  const effect = defineKind<SoakStep>({
    name: 'soak-effect',
    queue: 'soak-0',
    retry,
    handler: async (step, ctx) => {
      await begin(step, ctx);
      await ctx.commit((tx) =>
        tx.query('insert into soak.effects (job, queue, lane, seq) values ($1, $2, $3, $4)', [
          ctx.id,
          ctx.queue,
          ctx.lane,
          ctx.seq,
        ]),
      );
    },
  });
  return { plain, effect };
}

/** Connections that are none of the engine's. */
export function witnessPool(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 12, application_name: 'soak witness' });
  pool.on('error', () => {});
  return pool;
}
