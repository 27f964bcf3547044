/**
 * The expected result of the sent reads, by the simplest possible model: one pass over the reads of each basket in the order of
 * their times, whatever the order in which they went to the broker. It shares no code with the product that it checks.
 *
 * The simulator never sees a basket at two doors at one instant, and holds no message back for as long as the window.
 */
import type { SentRead } from './messages.ts';

/** The same movement again within this is counted on the first one. */
const windowMicros = 5 * 60 * 1_000_000;

export interface BasketTruth {
  /** The device where it is; each stands at a place of its own. */
  readonly place: string;
  readonly lastSeenAt: number;
  readonly movements: number;
  /** Of these movements, that were counted on them. */
  readonly repeats: number;
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

interface Sight {
  readonly device: string;
  readonly at: number;
}

/** Where a pass over reads stands. */
interface Pass {
  readonly place: string | null;
  readonly movements: number;
  readonly repeats: number;
  /** When each movement was last kept, by from and to. */
  readonly kept: ReadonlyMap<string, number>;
}

const begin: Pass = { place: null, movements: 0, repeats: 0, kept: new Map() };

function walk(pass: Pass, reads: readonly Sight[]): Pass {
  let { place, movements, repeats } = pass;
  const kept = new Map(pass.kept);
  for (const { device, at } of reads) {
    if (device === place) continue;
    const way = `${place} → ${device}`;
    const before = kept.get(way);
    if (before !== undefined && at - before < windowMicros) repeats += 1;
    else {
      kept.set(way, at);
      movements += 1;
    }
    place = device;
  }
  return { place, movements, repeats, kept };
}

/** The reads of one basket. Those that are older than the window stay where they are: they are walked once and forgotten. */
class Way {
  #walked = begin;
  #recent: Sight[] = [];
  #truth: BasketTruth | undefined;

  see({ device, at }: SentRead): void {
    let place = this.#recent.length;
    while (place > 0 && (this.#recent[place - 1] as Sight).at > at) place -= 1;
    this.#recent.splice(place, 0, { device, at });
    this.#truth = undefined;
    if (this.#recent.length < 200) return;
    const newest = (this.#recent.at(-1) as Sight).at;
    const old = this.#recent.filter((sight) => sight.at < newest - windowMicros);
    this.#walked = walk(this.#walked, old);
    this.#recent = this.#recent.slice(old.length);
  }

  get truth(): BasketTruth {
    this.#truth ??= this.#conclude();
    return this.#truth;
  }

  #conclude(): BasketTruth {
    const { movements, repeats } = walk(this.#walked, this.#recent);
    const last = this.#recent.at(-1) as Sight;
    return { place: last.device, lastSeenAt: last.at, movements, repeats };
  }
}

export class Truth {
  readonly #ways = new Map<string, Way>();
  #messages = 0;
  #reads = 0;
  #distinctReads = 0;
  #damaged = 0;

  get baskets(): ReadonlyMap<string, BasketTruth> {
    return new Map([...this.#ways].map(([epc, way]) => [epc, way.truth]));
  }

  get figures(): Figures {
    let movements = 0;
    for (const { truth } of this.#ways.values()) movements += truth.movements;
    return {
      messages: this.#messages,
      reads: this.#reads,
      distinctReads: this.#distinctReads,
      damaged: this.#damaged,
      baskets: this.#ways.size,
      movements,
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
    for (const read of reads) {
      const way = this.#ways.get(read.epc) ?? new Way();
      this.#ways.set(read.epc, way);
      way.see(read);
    }
  }
}
