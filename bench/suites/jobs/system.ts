import type { ClientBase } from 'pg';
import type { Workload } from './workloads.ts';

/** What every job carries, in every system: its number, its lane and its queue where the workload has them. */
export interface Payload {
  readonly index: number;
  readonly lane?: string;
  /** One of `queuesOf(workload)`, where there are any. */
  readonly queue?: string;
}

/**
 * The work itself, called once for each job. It may be synchronous; what it returns has to be awaited
 * before the job is settled.
 */
export type Handler = (payload: Payload) => void | Promise<void>;

/** Runs one statement of the user's for a job, in the way the system recommends. */
export type Write = (text: string, values: unknown[]) => Promise<unknown>;
export type WritingHandler = (payload: Payload, write: Write) => Promise<void>;

/** Where a system keeps its jobs; the runner hands `open` the address of a new, empty one. */
export type Store = 'postgres' | 'redis-everysec' | 'redis-always';

/**
 * A system under test, opened on an empty store for one run of one workload. Workloads with other processes open
 * the same store again there, to enqueue or to work.
 */
export interface OpenSystem {
  /** Enqueues one job and returns when it is durable. Sixteen callers do so at once in `enqueue-one`. */
  enqueue(payload: Payload): Promise<void>;
  /**
   * Enqueues up to `bulkChunk` jobs in one call and returns when they are durable. In `lanes` a chunk
   * holds a lane at most once, so only the order of the calls counts, not that of the jobs in one.
   */
  enqueueMany(payloads: readonly Payload[]): Promise<void>;
  /** Enqueues one job as part of the transaction that `client` has open. */
  enqueueIn?(client: ClientBase, payload: Payload): Promise<void>;
  /** Starts a worker with `CONCURRENCY`; returns when it has started, with the function that stops it. */
  work(handler: Handler): Promise<() => Promise<void>>;
  /** The same for a handler that writes to the database; all pools have `WRITING_POOL` connections. */
  workWithWrites?(handler: WritingHandler): Promise<() => Promise<void>>;
  /**
   * How many jobs are due and not yet durably finished, as the store says (not as this process
   * believes). Litter is not counted.
   */
  unfinished(): Promise<number>;
  /** Puts jobs in the way that must not run: dead ones, and ones due in a year. */
  litter(dead: number, future: number): Promise<void>;
  close(): Promise<void>;
}

export interface System {
  readonly store: Store;
  /** The most jobs `enqueueMany` is given in one call: what is fastest for this system. */
  readonly bulkChunk: number;
  /** Too slow for the full counts in `--quick`. */
  readonly slow?: boolean;
  /** Is no part of a workload: no row in its table. */
  skips?(workload: Workload): boolean;
  /** Why this system has no figure for a workload; undefined where it has one. */
  lacks?(workload: Workload): string | undefined;
  /** Creates what the system needs in the empty store at `url`, and connects. */
  open(url: string, workload: Workload): Promise<OpenSystem>;
}

/** Jobs a worker may run at once, in every system and workload. */
export const CONCURRENCY = 24;
/** Connections of every pool in `effects`: one for each job, and two for the system. */
export const WRITING_POOL = CONCURRENCY + 2;
/** Callers that enqueue at once in `enqueue-one`. */
export const CALLERS = 16;

/** Splits a count into parts of at most 5,000, for setting up what is not measured. */
export function chunks(count: number): number[] {
  return Array.from({ length: Math.ceil(count / 5_000) }, (_, part) => Math.min(5_000, count - part * 5_000));
}
