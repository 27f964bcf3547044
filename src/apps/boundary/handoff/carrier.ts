import { hash } from 'node:crypto';
import type { Database } from '../../../engine/database/database.ts';
import { messageOf } from '../../../engine/errors.ts';
import type { LockSession } from '../../../engine/locks/lock-session.ts';
import type { Logger } from '../../../engine/logger.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import { Outage } from '../../../engine/resilience/outage.ts';
import { streamName } from '../domain/delivery.ts';
import type { StreamId } from '../store/store.ts';
import { noteMode } from './handoffs.ts';
import { HandOff, type HandOffMode, type HandOffOptions } from './loop.ts';

export interface CarrierOptions extends Pick<HandOffOptions, 'waitMs' | 'retry'> {
  readonly database: Database;
  /** One for all carriers of the process. */
  readonly locks: LockSession;
  readonly stream: StreamId;
  /** Carries what there is, or waits for it, and returns how many facts that were. Fails if the other zone does not answer. */
  readonly carry: (waitMs: number, signal: AbortSignal) => Promise<number>;
  readonly logger: Logger;
  /** How often a process that does not carry asks for the lock. Default 1,000. */
  readonly standbyMs?: number;
}

export type CarrierState = 'waiting' | 'standby' | 'carrying';

/**
 * Carries one stream in one process of a node at a time.
 *
 *   waiting    the database has not said yet whether the stream's lock is free
 *   standby    another process has the stream's lock; this one asks for it again and again
 *   carrying   this process has the lock, and runs the hand-off
 *
 * The lock belongs to a connection, so that it is free as soon as its process dies: nobody waits for a lease. It is one connection for
 * all streams of a process; when it is lost, all of its carriers stop. Should two processes carry at once, because one lost its
 * locks without noticing, the receiver takes every fact once all the same.
 */
export class Carrier {
  readonly #options: CarrierOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #state: CarrierState = 'waiting';
  #noting: Promise<void> = Promise.resolve();

  constructor(options: CarrierOptions) {
    this.#options = options;
  }

  get state(): CarrierState {
    return this.#state;
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    await this.#noting;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { locks, stream, logger, standbyMs = 1000 } = this.#options;
    const lockId = lockIdOf(stream);
    const outage = new Outage(
      logger,
      { stream: streamName(stream) },
      {
        down: 'a hand-off could not get or keep its lock; trying again',
        up: 'a hand-off has its lock again',
      },
    );
    const carry = (held: AbortSignal): Promise<void> => {
      outage.up();
      return this.#carry(held);
    };
    while (!signal.aborted) {
      try {
        if (!(await locks.exclusively(lockId, carry, signal))) this.#state = 'standby';
      } catch (error) {
        if (!signal.aborted) outage.down(messageOf(error));
      }
      await pause(standbyMs, signal);
    }
  }

  async #carry(signal: AbortSignal): Promise<void> {
    const { stream, carry, logger, waitMs, retry } = this.#options;
    let isConnected = false;
    const handOff = new HandOff({
      stream,
      logger,
      ...(waitMs !== undefined && { waitMs }),
      ...(retry && { retry }),
      // The first step after trouble does not wait for facts, so that the mode is known at once.
      once: async (ms, stepSignal) => {
        try {
          const carried = await carry(isConnected ? ms : 0, stepSignal);
          isConnected = true;
          return carried;
        } catch (error) {
          isConnected = false;
          throw error;
        }
      },
      onMode: (mode, trouble) => this.#note(mode, trouble),
    });
    this.#state = 'carrying';
    handOff.start();
    try {
      await aborted(signal);
    } finally {
      this.#state = 'waiting';
      await handOff.stop();
    }
  }

  /** One after another, so that the last one stays. */
  #note(mode: HandOffMode, trouble: string | undefined): void {
    const { database, stream, logger } = this.#options;
    this.#noting = this.#noting
      .then(() => noteMode(database, stream, mode, trouble))
      .catch((error) =>
        logger.warn(
          { stream: streamName(stream), error: messageOf(error) },
          'the mode of a hand-off could not be kept',
        ),
      );
  }
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });

/** The same in every process of the node. Two streams may share an id only by the chance of 64 bits. */
const lockIdOf = ({ tenantId, buffer, from, to }: StreamId): bigint =>
  BigInt.asIntN(
    64,
    BigInt(`0x${hash('sha256', JSON.stringify(['boundary', tenantId, buffer, from, to])).slice(0, 16)}`),
  );
