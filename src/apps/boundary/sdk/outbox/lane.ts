import { existsSync } from 'node:fs';
import { create } from '@bufbuild/protobuf';
import { messageOf } from '../../../../engine/errors.ts';
import type { Logger } from '../../../../engine/logger.ts';
import { type BackoffLimits, backoffMs } from '../../../../engine/resilience/backoff.ts';
import { pause } from '../../../../engine/resilience/deadline.ts';
import { type AppendResult, AppendResultSchema } from '../../proto/tallyman/boundary/v1/boundary_pb.ts';
import { BoundaryCallError, callError, codeName, isAboutTheFact } from '../call-error.ts';
import type { Connection } from '../connection.ts';
import type { AppendedFact } from '../direct.ts';
import { appendRequest } from '../fact.ts';
import { putObject } from '../objects.ts';
import type { OutboxFile, Refused, WaitingFact } from './file.ts';

export interface LaneOptions {
  readonly toZone: string;
  readonly file: Pick<OutboxFile, 'waiting' | 'settle'>;
  readonly connection: Pick<Connection, 'client'>;
  /** Where the bytes of an attachment lie. */
  readonly fileOf: (digest: string) => string;
  readonly retry: BackoffLimits;
  readonly logger: Logger;
  /** Hears of every fact that has left the lane, after that is durable. */
  readonly onSettled: (settled: Settled) => void;
}

export interface Settled {
  readonly delivered: readonly (WaitingFact & AppendedFact)[];
  readonly parked: readonly (WaitingFact & Refused)[];
}

/** As much as the node takes in one call. */
const batchLimits = { facts: 1000, bytes: 1024 * 1024, objects: 32 } as const;
/** A call that is under way when the lane stops gets this long. */
const stopMs = 5_000;

/**
 * Sends the facts of an outbox that go to one zone, in order, one call at a time.
 *
 *   idle      nothing waits
 *   sending   a call is under way; what is appended meanwhile goes with the next one
 *   blocked   the first fact could not be sent, for a reason that is not its own: tried again after a while
 *   stopped
 *
 * A fact leaves the outbox after the node has answered for it. A crash in between sends it again, under the same id.
 */
export type LaneMode = 'idle' | 'sending' | 'blocked' | 'stopped';

export class Lane {
  readonly #options: LaneOptions;
  readonly #stopping = new AbortController();
  readonly #aborting = new AbortController();
  /** Objects that the node has, of facts that it does not have yet: see `objectId`. */
  readonly #stored = new Set<string>();
  #mode: LaneMode = 'idle';
  #trouble: string | undefined;
  #maxFacts: number = batchLimits.facts;
  #wake = (): void => {};
  #running: Promise<void> | undefined;

  constructor(options: LaneOptions) {
    this.#options = options;
  }

  get toZone(): string {
    return this.#options.toZone;
  }

  get mode(): LaneMode {
    return this.#mode;
  }

  /** Why it is blocked. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** There is something to send. */
  wake(): void {
    this.#wake();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake();
    const timer = setTimeout(() => this.#aborting.abort(), stopMs);
    await this.#running;
    clearTimeout(timer);
    this.#mode = 'stopped';
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; ) {
      try {
        if (await this.#sendSome()) failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        this.#blocked(callError(error));
        await pause(backoffMs(failures, this.#options.retry), signal);
        failures += 1;
      }
    }
  }

  /** False: there was nothing, and it was waited for. */
  async #sendSome(): Promise<boolean> {
    const { file, toZone } = this.#options;
    // Before the look: what is added in between is not missed.
    const woken = new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    const facts = file.waiting(toZone, { ...batchLimits, facts: this.#maxFacts });
    if (facts.length === 0) {
      this.#mode = 'idle';
      this.#trouble = undefined;
      if (!this.#stopping.signal.aborted) await woken;
      return false;
    }
    if (this.#mode !== 'blocked') this.#mode = 'sending';
    await this.#send(facts);
    if (this.#mode === 'blocked')
      this.#options.logger.info({ to_zone: toZone }, 'facts leave the outbox again');
    this.#mode = 'sending';
    this.#trouble = undefined;
    return true;
  }

  /** Throws if the first fact that is left cannot be sent now. What comes before it is settled. */
  async #send(facts: readonly WaitingFact[]): Promise<void> {
    const objects = await this.#storeObjects(facts);
    const { ready, refused } = objects;
    const answers = ready.length > 0 ? await this.#append(ready) : [];
    const delivered: (WaitingFact & AppendedFact)[] = [];
    let trouble: BoundaryCallError | undefined;
    for (const [i, fact] of ready.entries()) {
      const answer = this.#judged(fact, answers[i]);
      if (answer instanceof BoundaryCallError) trouble ??= answer;
      else if ('offset' in answer) delivered.push(answer);
      else refused.push(answer);
    }
    this.#settle(delivered, refused);
    trouble ??= objects.trouble;
    if (trouble) throw trouble;
  }

  #settle(
    delivered: readonly (WaitingFact & AppendedFact)[],
    refused: readonly (WaitingFact & Refused)[],
  ): void {
    this.#options.file.settle(
      delivered.map(({ seq }) => seq),
      refused,
    );
    for (const fact of [...delivered, ...refused]) this.#stored.delete(objectId(fact));
    for (const { messageId, reason, message } of refused)
      this.#options.logger.error(
        { to_zone: this.toZone, message_id: messageId, reason, why: message },
        'the node refused a fact; it is parked in the outbox',
      );
    this.#options.onSettled({ delivered, parked: refused });
  }

  /**
   * Objects go before the facts that name them. Facts behind one that cannot be stored now wait. So do those behind a fact whose object
   * was stored before an earlier call: the node may have collected it since, and then refuses that fact, but not those behind it.
   */
  async #storeObjects(facts: readonly WaitingFact[]): Promise<{
    readonly ready: WaitingFact[];
    readonly refused: (WaitingFact & Refused)[];
    readonly trouble: BoundaryCallError | undefined;
  }> {
    const ready: WaitingFact[] = [];
    const refused: (WaitingFact & Refused)[] = [];
    const before = new Set(this.#stored);
    for (const fact of facts) {
      try {
        await this.#storeObject(fact);
        ready.push(fact);
        if (before.has(objectId(fact))) break;
      } catch (error) {
        const told = callError(error);
        if (!told.isAnswer || !isAboutTheFact(told.code)) return { ready, refused, trouble: told };
        refused.push({ ...fact, reason: told.reason, message: told.message });
      }
    }
    return { ready, refused, trouble: undefined };
  }

  async #storeObject(fact: WaitingFact): Promise<void> {
    const { object } = fact;
    const { objectRef } = fact.input;
    if (!object || !objectRef || this.#stored.has(objectId(fact))) return;
    const file = this.#options.fileOf(object.digest);
    if (!existsSync(file))
      throw new BoundaryCallError('NOT_FOUND', 'attachment_lost', `the attachment's file ${file} is gone`, {
        mayPass: false,
        isAnswer: true,
      });
    const { bucket, key, digest, mediaType } = objectRef;
    await putObject(
      this.#options.connection.client,
      { bucket, key },
      { file },
      { digest, signal: this.#aborting.signal, ...(mediaType !== undefined && { mediaType }) },
    );
    this.#stored.add(objectId(fact));
  }

  async #append(facts: readonly WaitingFact[]): Promise<readonly AppendResult[]> {
    try {
      const { results } = await this.#options.connection.client.appendFacts(
        { facts: facts.map(({ input }) => appendRequest(input)) },
        { signal: this.#aborting.signal },
      );
      this.#maxFacts = batchLimits.facts;
      return results;
    } catch (error) {
      const told = callError(error);
      if (!told.isAnswer || !isAboutTheFact(told.code)) throw told;
      // The whole call was refused for one of its facts. Sent one by one, they have answers of their own.
      if (facts.length > 1) {
        this.#maxFacts = 1;
        throw told;
      }
      this.#maxFacts = batchLimits.facts;
      const { reason, message, code } = told;
      return [create(AppendResultSchema, { result: { case: 'refused', value: { reason, message, code } } })];
    }
  }

  /** What an answer means for its fact. An error: it stays, and is sent again. */
  #judged(
    fact: WaitingFact,
    answer: AppendResult | undefined,
  ): (WaitingFact & AppendedFact) | (WaitingFact & Refused) | BoundaryCallError {
    const { result } = answer ?? {};
    if (result?.case === 'appended')
      return { ...fact, offset: Number(result.value.offset), existing: result.value.existing };
    const { reason, message, code } =
      result?.case === 'refused'
        ? result.value
        : { reason: 'no_answer', message: 'the node gave no answer for this fact', code: 'unknown' };
    const isCollected = reason === 'object_not_stored' && fact.object !== undefined;
    if (isCollected) this.#stored.delete(objectId(fact));
    if (isAboutTheFact(codeName(code)) && !isCollected) return { ...fact, reason, message };
    return new BoundaryCallError(codeName(code), reason, `fact "${fact.messageId}": ${message}`, {
      mayPass: true,
      isAnswer: true,
    });
  }

  #blocked(error: BoundaryCallError): void {
    if (this.#mode !== 'blocked')
      this.#options.logger.warn(
        { to_zone: this.toZone, reason: error.reason, why: error.message },
        'facts stay in the outbox for now',
      );
    this.#mode = 'blocked';
    this.#trouble = messageOf(error);
  }
}

/** The same bytes may have several names. */
const objectId = ({ input: { objectRef } }: WaitingFact): string =>
  `${objectRef?.digest} ${objectRef?.bucket}/${objectRef?.key}`;
