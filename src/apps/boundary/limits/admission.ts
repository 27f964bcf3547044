import { statfs } from 'node:fs/promises';
import { streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import { describePin, pinOf } from '../retention.ts';
import type { FactStore, StreamId, StreamState } from '../store/store.ts';
import { dropOldest } from './drop.ts';
import { capacityOf, fillOf, isFull, type Limits } from './fill.ts';

/** What happens to appends to a full stream: they are refused, or the oldest facts make room. */
export type OnFull = 'refuse' | 'drop-oldest';

export interface AdmissionOptions {
  readonly store: FactStore;
  readonly limits: Limits;
  /** Free bytes of the disk that the storage lies on; undefined where it is another machine's. */
  readonly freeBytes: () => Promise<number | undefined>;
  /** For each stream. Default: refuse. */
  readonly onFull?: (stream: StreamId) => OnFull;
  /** Hears of facts that were dropped to make room. */
  readonly onDropped?: (stream: StreamId, count: number) => void;
  /** How long what is known about a stream counts. Default 1,000. */
  readonly refreshMs?: number;
  /** Milliseconds of a clock that only grows. */
  readonly clock?: () => number;
}

interface Known {
  readonly at: number;
  readonly capacity: number;
  readonly full: boolean;
  /** As read, and what this process has admitted since. */
  bytes: number;
}

/**
 * Decides before each append whether the stream has room. Storage is asked at most once in `refreshMs` for each stream; in
 * between what this process has appended is added up. The room above `refuseAt` is for what other processes append
 * meanwhile. That a stream is full is kept in the storage: all processes of the node agree, also after a restart.
 *
 * A stream that drops its oldest facts is brought down to `acceptAt` of its own limit when it has reached `refuseAt`. A disk
 * without room refuses appends to it as to any other: dropping facts gives no space back to others.
 */
export class Admission {
  readonly #options: AdmissionOptions;
  readonly #refreshMs: number;
  readonly #clock: () => number;
  readonly #known = new Map<string, Known>();
  readonly #refreshing = new Map<string, Promise<Known>>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
    this.#refreshMs = options.refreshMs ?? 1000;
    this.#clock = options.clock ?? (() => performance.now());
  }

  /** Throws RESOURCE_EXHAUSTED (stream_full) if there is no room for so many bytes. */
  async admit(stream: StreamId, bytes: number): Promise<void> {
    const id = `${stream.buffer}/${stream.from}/${stream.to} ${stream.tenantId}`;
    let known = this.#known.get(id);
    if (!known || this.#isStale(known)) known = await this.#refresh(id, stream);
    if (known.full) throw await this.#refusal(stream, known);
    known.bytes += bytes;
  }

  /** An estimate that has reached the limit is checked before it is believed. */
  #isStale({ at, bytes, capacity, full }: Known): boolean {
    const { refuseAt } = this.#options.limits;
    return this.#clock() - at >= this.#refreshMs || (!full && fillOf(bytes, capacity) >= refuseAt);
  }

  #refresh(id: string, stream: StreamId): Promise<Known> {
    const running = this.#refreshing.get(id);
    if (running) return running;
    const refresh = this.#look(stream)
      .then((known) => {
        this.#known.set(id, known);
        return known;
      })
      .finally(() => this.#refreshing.delete(id));
    this.#refreshing.set(id, refresh);
    return refresh;
  }

  async #look(stream: StreamId): Promise<Known> {
    const { store, limits, freeBytes } = this.#options;
    const at = this.#clock();
    const [before, free] = await Promise.all([store.state(stream), freeBytes()]);
    const state = await this.#withRoom(stream, before);
    const bytes = state?.bytes ?? 0;
    const capacity = capacityOf(bytes, free, limits);
    const wasFull = state?.fullSince !== undefined;
    const full = isFull(fillOf(bytes, capacity), wasFull, limits);
    if (full !== wasFull) await store.setFull(stream, full);
    return { at, capacity, full, bytes };
  }

  async #withRoom(stream: StreamId, state: StreamState | undefined): Promise<StreamState | undefined> {
    const { store, limits, onFull, onDropped } = this.#options;
    const isOver = fillOf(state?.bytes ?? 0, limits.maxBytes) >= limits.refuseAt;
    if (!isOver || onFull?.(stream) !== 'drop-oldest') return state;
    const dropped = await dropOldest(store, stream, Math.floor(limits.maxBytes * limits.acceptAt));
    if (dropped > 0) onDropped?.(stream, dropped);
    return store.state(stream);
  }

  async #refusal(stream: StreamId, { bytes, capacity }: Known): Promise<BoundaryError> {
    const { store, limits } = this.#options;
    const state: StreamState | undefined = await store.state(stream);
    const pin = state && pinOf(state, await store.consumers(stream));
    const percent = Math.round(100 * fillOf(bytes, capacity));
    return new BoundaryError(
      'RESOURCE_EXHAUSTED',
      'stream_full',
      `${streamName(stream)} holds ${bytes} of ${capacity} bytes (${percent} %) and takes no more until it is down to ` +
        `${Math.round(100 * limits.acceptAt)} %; nothing was written. ${describePin(pin)}`,
      { details: { bytes, capacity, ...(pin && { pinned_by: pin.name }) } },
    );
  }
}

/** Free bytes for unprivileged users of the disk with this folder. */
export const freeBytesOf = (folder: string) => async (): Promise<number> => {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
};
