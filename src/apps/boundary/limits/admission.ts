import { statfs } from 'node:fs/promises';
import { streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import { describePin, hasConfirmed, pinOf } from '../retention.ts';
import type { FactStore, StreamId, StreamState } from '../store/store.ts';
import { bytesAt, capacityOf, fillOf, isFull, type Limits } from './fill.ts';
import { RoomMaking } from './make-room.ts';

/** What happens to appends to a full stream: they are refused, or the oldest facts make room. */
export type OnFull = 'refuse' | 'drop-oldest';

export interface AdmissionOptions {
  readonly store: FactStore;
  readonly limits: Limits;
  /** Free bytes of the disk that the storage lies on; undefined where it is another machine's. */
  readonly freeBytes: () => Promise<number | undefined>;
  /** For each stream. Default: refuse. */
  readonly onFull?: (stream: StreamId) => OnFull;
  /** Hears of confirmed facts that were trimmed before their time. */
  readonly onTrimmed?: (stream: StreamId, count: number) => void;
  /** Hears of facts that were dropped to make room. */
  readonly onDropped?: (stream: StreamId, count: number) => void;
  /** How long what is known about a stream counts. Default 1,000. */
  readonly refreshMs?: number;
  /** Milliseconds of a clock that only grows. */
  readonly clock?: () => number;
}

/** What the storage says. */
interface Seen {
  readonly bytes: number;
  readonly capacity: number;
  readonly fill: number;
  readonly wasFull: boolean;
  /** Of the disk. */
  readonly free: number | undefined;
}

interface Known {
  readonly at: number;
  readonly capacity: number;
  readonly full: boolean;
  /** How full the stream may be by the estimate before the storage is asked again. */
  readonly lookAt: number;
  /** As read, and what this process has admitted since. */
  bytes: number;
}

/**
 * Decides before facts go into a stream whether it has room. Storage is asked at most once in `refreshMs` for each stream; in
 * between what this process has admitted is added up. The room above `refuseAt` is for what other processes append
 * meanwhile. That a stream is full is kept in the storage: all processes of the node agree, also after a restart.
 *
 * A stream that has reached `refuseAt` trims what everyone has confirmed, however young it is, until it is down to `acceptAt`. One
 * that drops its oldest facts then does that, down to `acceptAt` of its own limit. Both happen in the background, and facts are
 * admitted meanwhile as long as the stream holds less than it may. A disk without room refuses facts to it as to any other: dropping
 * facts gives no space back to others.
 */
export class Admission {
  readonly #options: AdmissionOptions;
  readonly #refreshMs: number;
  readonly #clock: () => number;
  readonly #known = new Map<string, Known>();
  readonly #refreshing = new Map<string, Promise<Known>>();
  readonly #making = new Map<string, RoomMaking>();
  #stopped = false;

  constructor(options: AdmissionOptions) {
    this.#options = options;
    this.#refreshMs = options.refreshMs ?? 1000;
    this.#clock = options.clock ?? (() => performance.now());
  }

  /** Throws RESOURCE_EXHAUSTED (stream_full) if there is no room for so many bytes. */
  async admit(stream: StreamId, bytes: number): Promise<void> {
    let known = this.#known.get(idOf(stream));
    if (!known || this.#isStale(known)) known = await this.#refresh(stream);
    if (known.full) throw await this.#refusal(stream, known);
    known.bytes += bytes;
  }

  /**
   * Makes room if the stream is short of it, and notes whether it is full, although nobody appends: what was confirmed meanwhile may
   * have made room.
   */
  async review(stream: StreamId): Promise<void> {
    await this.#refresh(stream);
    const making = this.#making.get(idOf(stream));
    if (!making) return;
    await making.done;
    await this.#refresh(stream);
  }

  /** Waits for what is under way in the background. */
  async stop(): Promise<void> {
    this.#stopped = true;
    const all = [...this.#making.values()];
    for (const making of all) making.stop();
    await Promise.allSettled(all.map(({ done }) => done));
  }

  /** An estimate that has reached the limit is checked before it is believed. */
  #isStale({ at, bytes, capacity, full, lookAt }: Known): boolean {
    return this.#clock() - at >= this.#refreshMs || (!full && fillOf(bytes, capacity) >= lookAt);
  }

  #refresh(stream: StreamId): Promise<Known> {
    const id = idOf(stream);
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
    const { store, limits } = this.#options;
    const at = this.#clock();
    let seen = await this.#see(stream);
    const { wasFull } = seen;
    const making = isFull(seen.fill, wasFull, limits) ? await this.#makeRoom(stream, seen) : undefined;
    if (making && (wasFull || seen.bytes >= limits.maxBytes))
      do {
        await making.step;
        seen = await this.#see(stream);
      } while (making.isRunning && seen.bytes >= limits.maxBytes);
    const { fill, bytes, capacity } = seen;
    // One that was full stays full until it is down to `acceptAt`, so that it does not flap.
    const mayPass = making !== undefined && !wasFull && fill < 1;
    const full = !mayPass && isFull(fill, wasFull, limits);
    if (full !== wasFull) await store.setFull(stream, full);
    return { at, capacity, full, bytes, lookAt: mayPass ? 1 : limits.refuseAt };
  }

  async #see(stream: StreamId): Promise<Seen> {
    const { store, limits, freeBytes } = this.#options;
    const [state, free] = await Promise.all([store.state(stream), freeBytes()]);
    const bytes = state?.bytes ?? 0;
    const capacity = capacityOf(bytes, free, limits);
    return { bytes, capacity, fill: fillOf(bytes, capacity), wasFull: state?.fullSince !== undefined, free };
  }

  /** Undefined: nothing in it may go. */
  async #makeRoom(stream: StreamId, { bytes, free }: Seen): Promise<RoomMaking | undefined> {
    const { store, limits, onFull, onTrimmed, onDropped } = this.#options;
    const id = idOf(stream);
    const running = this.#making.get(id);
    if (running || this.#stopped) return running;
    const from = bytesAt(limits.refuseAt, undefined, limits);
    const drop =
      bytes >= from && onFull?.(stream) === 'drop-oldest'
        ? { from, to: bytesAt(limits.acceptAt, undefined, limits) }
        : undefined;
    if (!drop && !(await hasConfirmed(store, stream))) return undefined;
    const making = new RoomMaking(store, stream, { trimTo: bytesAt(limits.acceptAt, free, limits), drop });
    this.#making.set(id, making);
    const told = making.done.finally(() => {
      this.#making.delete(id);
      const { trimmed, dropped } = making.made;
      if (trimmed > 0) onTrimmed?.(stream, trimmed);
      if (dropped > 0) onDropped?.(stream, dropped);
    });
    // Upkeep hears of it, and who waits for a step; the next look tries again.
    told.catch(() => {});
    return making;
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

const idOf = ({ tenantId, buffer, from, to }: StreamId): string => `${buffer}/${from}/${to} ${tenantId}`;

/** Free bytes for unprivileged users of the disk with this folder. */
export const freeBytesOf = (folder: string) => async (): Promise<number> => {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
};
