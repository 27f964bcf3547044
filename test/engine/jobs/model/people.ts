import type pg from 'pg';
import { expect } from 'vitest';
import { defineKind, type Kind } from '../../../../src/engine/jobs/kind.ts';
import type { EnqueueOptions } from '../../../../src/engine/jobs/new-job.ts';
import type { Bundle } from '../../../support/engine.ts';
import type { Model, ModelJob, ModelLane } from './model.ts';
import { type Place, queues } from './steps.ts';

const handler = () => {};
const skips = defineKind<number>({ name: 'skips', handler });
const blocks = defineKind<number>({ name: 'blocks', lane: { policy: 'block' }, handler });
export const kinds = ['skips', 'blocks'];

const hourMs = 3_600_000;

/** A transaction that has enqueued one job and is still open. */
interface Writer {
  readonly client: pg.PoolClient;
  readonly laneKey: string | undefined;
  readonly add: () => void;
}

/** What everybody but workers does: enqueue, also in transactions that stay open, cancel, retry, redrive, unblock. */
export class People {
  readonly #bundle: Bundle;
  readonly #model: Model;
  readonly #keys = new Map<string, string>();
  readonly #writers = new Map<number, Writer>();

  constructor(bundle: Bundle, model: Model) {
    this.#bundle = bundle;
    this.#model = model;
  }

  /** An open transaction has the lane's gate: whoever else wants it would wait. */
  isWritten(key: string | undefined): boolean {
    return key !== undefined && [...this.#writers.values()].some(({ laneKey }) => laneKey === key);
  }

  async enqueue(place: Place, keyNumber: number, copies: number, isDelayed: boolean): Promise<void> {
    const { kind, options, laneKey } = this.#placed(place);
    if (this.isWritten(laneKey)) return;
    for (let i = 0; i < copies; i += 1) {
      const dedupeKey = keyNumber > 6 || i > 0 ? undefined : `key-${keyNumber}`;
      const answer = await this.#bundle.tallyman.enqueue(kind, i, {
        ...options,
        ...(isDelayed && { delayMs: hourMs }),
        ...(dedupeKey && { dedupeKey }),
      });
      const name = `${kind.name} ${dedupeKey}`;
      const known = dedupeKey === undefined ? undefined : this.#keys.get(name);
      expect(answer.existing).toBe(known !== undefined);
      if (known !== undefined) {
        expect(answer.id).toBe(known);
        continue;
      }
      if (dedupeKey) this.#keys.set(name, answer.id);
      this.#add(answer.id, place, !isDelayed);
    }
  }

  async write(number: number, place: Place): Promise<void> {
    const { kind, options, laneKey } = this.#placed(place);
    if (this.#writers.has(number) || this.isWritten(laneKey)) return;
    const client = await this.#bundle.tallyman.database.pool.connect();
    // However long the history goes on.
    await client.query('begin; set local idle_in_transaction_session_timeout = 0');
    const { id } = await this.#bundle.tallyman.enqueue(kind, 0, { ...options, tx: client });
    this.#writers.set(number, { client, laneKey, add: () => this.#add(id, place, true) });
  }

  async endWrite(number: number, isCommit: boolean): Promise<void> {
    const writer = this.#writers.get(number);
    if (!writer) return;
    this.#writers.delete(number);
    await writer.client.query(isCommit ? 'commit' : 'rollback').finally(() => writer.client.release());
    if (isCommit) writer.add();
  }

  async endAllWrites(isCommit: boolean): Promise<void> {
    for (const number of [...this.#writers.keys()]) await this.endWrite(number, isCommit);
  }

  async cancel(nth: number): Promise<ModelJob | undefined> {
    const job = this.#nth(nth, this.#model.live);
    if (!job || this.isWritten(job.lane?.key)) return undefined;
    await this.#bundle.tallyman.jobs.cancel(job.id);
    this.#model.end(job, 'CANCELLED');
    return job;
  }

  /** Of any job: what has succeeded or is about to run refuses, what waits runs now, what ended otherwise runs again. */
  async retry(nth: number): Promise<void> {
    const job = this.#nth(nth, [...this.#model.jobs.values()]);
    if (job) await this.#retry(job);
  }

  async cancelAndRetry(nth: number): Promise<void> {
    const job = await this.cancel(nth);
    if (job) await this.#retry(job);
  }

  async #retry(job: ModelJob): Promise<void> {
    if (this.isWritten(job.lane?.key)) return;
    const isPossible = job.ended ? job.ended !== 'SUCCEEDED' : !job.isDue;
    expect(await this.#done('select tallyman.retry($1) as done', [job.id])).toBe(isPossible);
    if (!isPossible) return;
    if (job.ended) this.#model.redrive(job, false);
    else job.isDue = true;
  }

  async redrive(nth: number, toHead: boolean): Promise<void> {
    const unhappy = [...this.#model.jobs.values()].filter((job) => job.ended && job.ended !== 'SUCCEEDED');
    const job = this.#nth(nth, unhappy);
    if (!job || this.isWritten(job.lane?.key)) return;
    expect(await this.#done('select tallyman.redrive($1, $2) as done', [job.id, toHead])).toBe(true);
    this.#model.redrive(job, toHead);
  }

  async unblock(lane: ModelLane | undefined): Promise<void> {
    if (!lane || this.isWritten(lane.key)) return;
    const [row] = await this.#bundle.rows<{ id: string }>('select id from tallyman.lanes where key = $1', [
      lane.key,
    ]);
    const isDone = await this.#done('select tallyman.unblock($1) as done', [row?.id]);
    expect(isDone).toBe(lane.blockedBy !== undefined);
    lane.blockedBy = undefined;
  }

  async pause(queue: string): Promise<void> {
    await this.#bundle.tallyman.queues.pause(queue);
    this.#model.paused.add(queue);
  }

  async resume(queue: string): Promise<void> {
    await this.#bundle.tallyman.queues.resume(queue);
    this.#model.paused.delete(queue);
  }

  /** Two hours pass for everything that waits. */
  async wait(): Promise<void> {
    await this.#bundle.rows(
      `with jobs as (
         update tallyman.jobs set scheduled_at = scheduled_at - interval '2 hours' where scheduled_at > now())
       update tallyman.lanes set due_at = due_at - interval '2 hours' where due_at is not null`,
    );
    for (const job of this.#model.live) job.isDue = true;
  }

  /** A lane's number decides its queue and what it does when a job is dead. */
  #placed(place: Place): { kind: Kind<number>; options: EnqueueOptions; laneKey: string | undefined } {
    const { lane, priority, maxAttempts } = place;
    const laneKey = lane < 4 ? `lane-${lane}` : undefined;
    const queue = queueOf(place);
    const options = { queue, priority, maxAttempts, ...(laneKey && { lane: laneKey }) };
    return { kind: lane % 2 === 1 ? blocks : skips, options, laneKey };
  }

  #add(id: string, place: Place, isDue: boolean): void {
    const { priority, maxAttempts } = place;
    const queue = queueOf(place);
    const { kind, laneKey } = this.#placed(place);
    const lane = laneKey ? this.#model.lane(laneKey, queue, kind === blocks) : undefined;
    this.#model.add({ id, queue, priority, lane, maxAttempts, isDue });
  }

  #nth<T>(nth: number, among: readonly T[]): T | undefined {
    return among[nth % Math.max(1, among.length)];
  }

  async #done(sql: string, values: unknown[]): Promise<boolean | undefined> {
    return (await this.#bundle.rows<{ done: boolean }>(sql, values))[0]?.done;
  }
}

const queueOf = ({ lane, queue }: Place): string => queues[lane < 4 ? lane % 3 : queue] ?? queues[0];
