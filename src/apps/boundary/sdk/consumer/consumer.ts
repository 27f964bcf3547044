import { hostname } from 'node:os';
import { messageOf, PermanentError, TallymanError } from '../../../../engine/errors.ts';
import { consoleLogger, type Logger } from '../../../../engine/logger.ts';
import { type BackoffLimits, backoffMs } from '../../../../engine/resilience/backoff.ts';
import { pause } from '../../../../engine/resilience/deadline.ts';
import { invalid } from '../../domain/errors.ts';
import { BoundaryCallError, callError } from '../call-error.ts';
import { Connection, type ConnectionOptions, type TlsOptions } from '../connection.ts';
import { readObject } from '../objects.ts';
import { withRetries } from '../retry.ts';
import { Lease } from './lease.ts';
import { ParkedFacts, type PoisonFact } from './parked-facts.ts';
import { type Gap, type Received, type ReceivedFact, receivedOf } from './received.ts';

export interface HandlerContext {
  /** 1 for the first. */
  readonly attempt: number;
  /** Fires when another instance has taken over: what the handler does from here on, the other one does as well. */
  readonly signal: AbortSignal;
  /** The bytes of the object that the fact is about. */
  readObject(): AsyncIterable<Uint8Array>;
}

export interface ConsumerOptions extends ConnectionOptions {
  readonly fromZone: string;
  readonly toZone: string;
  /** The node keeps a cursor for each name. */
  readonly name: string;
  /**
   * Tells processes of one consumer apart. Default: host name and process id. Give one that stays (the host's name, a pod's
   * ordinal) and a process that is restarted goes on at once; otherwise it waits until the lease of the old one has run out.
   */
  readonly instance?: string;
  /** Where a consumer begins that the node does not know. Default: with the first fact that is kept. */
  readonly start?: { readonly after: number } | { readonly at: Date } | 'end';
  /** Called for each fact, in order, one at a time. It may see a fact twice: what it does must bear that. */
  readonly handler: (fact: ReceivedFact, context: HandlerContext) => unknown;
  /** Called in the place of a fact that is missing. What it throws counts like an error of the handler. */
  readonly onGap: (gap: Gap) => unknown;
  /** What happens to a fact that the handler cannot handle. Default: five attempts, then it stops. */
  readonly poison?: PoisonOptions;
  /** Facts in one call. Default 100, at most 1,000. */
  readonly batch?: number;
  /** How long the node waits for facts before it answers that there are none. Default 20,000. */
  readonly waitMs?: number;
  /** How long to wait after a call that did not succeed. Default: from 200 ms, doubling, to 30 s. */
  readonly retry?: Partial<BackoffLimits>;
  /** Default: warnings and errors on standard error. */
  readonly logger?: Logger;
}

export interface PoisonOptions {
  /** How often the handler gets a fact. Default 5. A PermanentError of the handler counts for all of them. */
  readonly attempts?: number;
  /** The wait after the first attempt; it doubles from there, to `maxMs`. Default: from 200 ms to 10 s. */
  readonly backoff?: Partial<BackoffLimits>;
  /** Keeps the fact, and the consumer goes on. Default: the consumer stops before the fact, and `done` rejects. */
  readonly parkIn?: Parking;
}

/** A file, or a function of yours that resolves when it has kept the fact. If it fails, the consumer stops. */
export type Parking = ParkedFacts | ((poison: PoisonFact) => unknown);

/**
 *   starting      no answer yet
 *   consuming     it has the consumer
 *   standby       another instance has it; this one takes over when that is silent
 *   disconnected  the node cannot be reached, or does not let us
 *   stopped
 */
export type ConsumerMode = 'starting' | 'consuming' | 'standby' | 'disconnected' | 'stopped';

/** The consumer stopped before this fact: its handler failed as often as it may. */
export class PoisonError extends TallymanError {
  override readonly name = 'PoisonError';
  readonly fact: ReceivedFact | undefined;
  readonly gap: Gap | undefined;

  constructor(received: Received, cause: unknown) {
    super(
      'POISON_FACT',
      `offset ${received.offset} could not be handled: ${messageOf(cause)}. The consumer stopped before it; nothing behind it was handled.`,
      { cause },
    );
    this.fact = 'fact' in received ? received.fact : undefined;
    this.gap = 'gap' in received ? received.gap : undefined;
  }
}

/** Between two confirmations while a batch is handled: what a crash makes come again. */
const confirmEveryMs = 1_000;
/** How often a standby asks. */
const standby: BackoffLimits = { minMs: 1_000, maxMs: 5_000 };

/**
 * Fetches facts, hands them to the handler in order, and confirms them after it: at least once. A fact comes again if this
 * process ends between its handler and the confirmation.
 */
export class Consumer {
  readonly #options: ConsumerOptions;
  readonly #connection: Connection;
  readonly #logger: Logger;
  readonly #instance: string;
  readonly #stopping = new AbortController();
  readonly #done = Promise.withResolvers<void>();
  #mode: ConsumerMode = 'starting';
  #trouble: string | undefined;
  #running: Promise<void> | undefined;

  constructor(options: ConsumerOptions) {
    if ((options.poison?.attempts ?? 1) < 1) throw invalid('poison.attempts', 'must be at least 1');
    this.#options = options;
    this.#connection = new Connection(options);
    this.#logger = options.logger ?? consoleLogger;
    this.#instance = options.instance ?? `${hostname()}/${process.pid}`;
    this.#done.promise.catch(() => {});
  }

  get mode(): ConsumerMode {
    return this.#mode;
  }

  /** Why it does not consume. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Resolves when the consumer was stopped; rejects (PoisonError) if it stopped by itself. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  start(): this {
    this.#running ??= this.#run().then(
      () => this.#ended(() => this.#done.resolve()),
      (error: unknown) => this.#ended(() => this.#done.reject(error)),
    );
    return this;
  }

  /** Waits for the handler that runs, confirms what it has done, and ends. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#running) await this.#running;
    else this.#ended(() => this.#done.resolve());
  }

  renewCertificates(tls: TlsOptions): void {
    this.#connection.renew(tls);
  }

  #ended(settle: () => void): void {
    this.#mode = 'stopped';
    this.#connection.close();
    settle();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; ) {
      try {
        const received = await this.#fetch();
        this.#enter('consuming', undefined);
        failures = 0;
        await this.#handleAll(received);
      } catch (error) {
        if (error instanceof PoisonError) throw error;
        if (signal.aborted) return;
        const told = callError(error);
        const isStandby = told.reason === 'consumer_in_use' || told.reason === 'consumer_taken_over';
        this.#enter(isStandby ? 'standby' : 'disconnected', told);
        await pause(backoffMs(failures, isStandby ? standby : this.#retry()), signal);
        failures += 1;
      }
    }
  }

  async #fetch(): Promise<Received[]> {
    const { batch = 100, waitMs = 20_000, timeoutMs = 30_000 } = this.#options;
    const { signal } = this.#stopping;
    const start = this.#options.start && startPosition(this.#options.start);
    const { facts, cursor, epoch } = await this.#connection.client.fetchFacts(
      { ...this.#who(), limit: batch, waitMs, ...(start && { start }) },
      { signal, timeoutMs: waitMs + timeoutMs },
    );
    return receivedOf(facts, Number(cursor), epoch);
  }

  /** Rejects if the lease was lost: the rest of the batch is the other instance's. */
  async #handleAll(received: readonly Received[]): Promise<void> {
    if (received.length === 0) return;
    const lease = new Lease(() => this.#renewLease());
    let confirmed = 0;
    let confirmedAt = performance.now();
    let handled = 0;
    const confirm = async (): Promise<void> => {
      if (handled === confirmed) return;
      await this.#confirm(handled);
      confirmed = handled;
      confirmedAt = performance.now();
    };
    try {
      for (const each of received) {
        if (this.#stopping.signal.aborted) break;
        await this.#handle(each, lease.signal);
        await lease.check();
        handled = each.offset;
        if (performance.now() - confirmedAt >= confirmEveryMs) await confirm();
      }
      await confirm();
    } catch (error) {
      // What was handled before is done, unless another instance has it to do.
      if (!lease.signal.aborted) await confirm().catch(() => {});
      throw error;
    } finally {
      await lease.end();
    }
  }

  /** Until it is handled, parked, or must stop. */
  async #handle(received: Received, lease: AbortSignal): Promise<void> {
    const { attempts = 5, backoff, parkIn } = this.#options.poison ?? {};
    const stopping = this.#stopping.signal;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#once(received, attempt, lease);
      } catch (error) {
        if (lease.aborted || stopping.aborted) throw lease.aborted ? lease.reason : error;
        // The node was gone while the handler read an object: that says nothing about the fact.
        const outage = outageIn(error);
        if (outage) throw outage;
        if (attempt < attempts && !(error instanceof PermanentError)) {
          this.#logger.warn(
            { consumer: this.#options.name, offset: received.offset, attempt, error: messageOf(error) },
            'a handler failed; it gets the fact again',
          );
          const limits = { minMs: backoff?.minMs ?? 200, maxMs: backoff?.maxMs ?? 10_000 };
          await pause(backoffMs(attempt - 1, limits), AbortSignal.any([lease, stopping]));
          // Another instance has it now, or this one is to end: the fact comes again.
          if (lease.aborted || stopping.aborted) throw lease.aborted ? lease.reason : error;
          continue;
        }
        if (!parkIn || !('fact' in received)) throw new PoisonError(received, error);
        await this.#park(received, parkIn, error, attempt);
        return;
      }
    }
  }

  async #once(received: Received, attempt: number, signal: AbortSignal): Promise<void> {
    if ('gap' in received) {
      await this.#options.onGap(received.gap);
      return;
    }
    const { fact } = received;
    await this.#options.handler(fact, {
      attempt,
      signal,
      readObject: () => {
        if (!fact.reference) throw new Error(`fact "${fact.messageId}" names no object`);
        return readObject(this.#connection.client, fact.reference, signal);
      },
    });
  }

  async #park(
    received: Received & { readonly fact: ReceivedFact },
    place: Parking,
    cause: unknown,
    attempts: number,
  ): Promise<void> {
    const { fact } = received;
    const poison = { consumer: this.#options.name, fact, error: messageOf(cause), attempts };
    try {
      if (place instanceof ParkedFacts) place.park(poison);
      else await place(poison);
    } catch (error) {
      throw new PoisonError(received, new Error('it could not be parked', { cause: error }));
    }
    this.#logger.error(
      { consumer: poison.consumer, offset: fact.offset, message_id: fact.messageId, error: poison.error },
      'a fact could not be handled; it is parked',
    );
  }

  /** Also while it stops: what was handled is confirmed. */
  async #confirm(offset: number): Promise<void> {
    await withRetries(() =>
      this.#connection.client.confirmReceipt({ ...this.#who(), offset: BigInt(offset) }),
    );
  }

  /** A fetch renews the lease; what it returns is not looked at. */
  async #renewLease(): Promise<void> {
    await this.#connection.client.fetchFacts({ ...this.#who(), limit: 1, maxBytes: 1 });
  }

  #who() {
    const { fromZone, toZone, name } = this.#options;
    return { stream: { fromZone, toZone }, consumerName: name, instanceId: this.#instance };
  }

  #retry(): BackoffLimits {
    const { retry } = this.#options;
    return { minMs: retry?.minMs ?? 200, maxMs: retry?.maxMs ?? 30_000 };
  }

  #enter(mode: ConsumerMode, error: BoundaryCallError | undefined): void {
    if (mode !== this.#mode) {
      const told = { consumer: this.#options.name, mode, ...(error && { why: error.message }) };
      if (mode === 'disconnected') this.#logger.warn(told, 'the consumer gets no facts');
      else this.#logger.info(told, 'the consumer has changed its mode');
    }
    this.#mode = mode;
    this.#trouble = error?.message;
  }
}

/** What the handler threw, or what caused it, is a call to the node that may pass. */
function outageIn(error: unknown): BoundaryCallError | undefined {
  const seen = new Set<unknown>();
  for (let each = error; each instanceof Error && !seen.has(each); each = each.cause) {
    if (each instanceof BoundaryCallError && each.mayPass) return each;
    seen.add(each);
  }
  return undefined;
}

function startPosition(start: NonNullable<ConsumerOptions['start']>) {
  if (start === 'end') return { position: { case: 'atEnd' as const, value: true } };
  return 'after' in start
    ? { position: { case: 'afterOffset' as const, value: BigInt(start.after) } }
    : { position: { case: 'atUnixMs' as const, value: BigInt(start.at.getTime()) } };
}
