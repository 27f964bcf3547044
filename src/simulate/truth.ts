/**
 * The expected result of the sent reads, by the simplest possible model: one read after another, in the order in which they
 * went to the broker. It shares no code with the product that it checks.
 */
import type { SentRead } from './messages.ts';

/** The same movement again within this is the same movement. */
const windowMicros = 5 * 60 * 1_000_000;

export interface BasketTruth {
  /** The device where it is; each stands at a place of its own. */
  place: string;
  lastSeenAt: number;
  movements: number;
  lastMovement: { readonly from: string | null; readonly to: string; readonly at: number };
}

export interface Figures {
  readonly messages: number;
  /** Reads in them, those that were sent again included. */
  readonly reads: number;
  readonly distinctReads: number;
  /** Messages that no parser can make sense of. */
  readonly damaged: number;
  readonly baskets: number;
  readonly movements: number;
}

export class Truth {
  readonly baskets = new Map<string, BasketTruth>();
  #messages = 0;
  #reads = 0;
  #distinctReads = 0;
  #damaged = 0;
  #movements = 0;

  get figures(): Figures {
    return {
      messages: this.#messages,
      reads: this.#reads,
      distinctReads: this.#distinctReads,
      damaged: this.#damaged,
      baskets: this.baskets.size,
      movements: this.#movements,
    };
  }

  damaged(): void {
    this.#messages += 1;
    this.#damaged += 1;
  }

  /** `again`: the reader has sent this very message before. */
  sent(reads: readonly SentRead[], again: boolean): void {
    this.#messages += 1;
    this.#reads += reads.length;
    if (again) return;
    this.#distinctReads += reads.length;
    for (const read of reads) this.#see(read);
  }

  #see({ epc, device, at }: SentRead): void {
    const basket = this.baskets.get(epc);
    if (basket === undefined) {
      this.#movements += 1;
      this.baskets.set(epc, {
        place: device,
        lastSeenAt: at,
        movements: 1,
        lastMovement: { from: null, to: device, at },
      });
      return;
    }
    if (at < basket.lastSeenAt) return;
    const from = basket.place;
    if (device !== from && at === basket.lastSeenAt) return;
    basket.lastSeenAt = at;
    if (device === from) return;
    basket.place = device;
    const last = basket.lastMovement;
    if (last.from === from && last.to === device && at - last.at < windowMicros) return;
    basket.lastMovement = { from, to: device, at };
    basket.movements += 1;
    this.#movements += 1;
  }
}
