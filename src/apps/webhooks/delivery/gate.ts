export interface GateOptions {
  /** The most deliveries that this process runs at once for one endpoint. */
  readonly perEndpoint: number;
  /** How long a delivery may wait here for its turn, in a slot of the worker. Default 100. */
  readonly patienceMs?: number;
}

interface Traffic {
  readonly startedAt: Set<number>;
  /** Waiting deliveries; each is called with whether it may start. */
  readonly waiting: ((hasRoom: boolean) => void)[];
  /** Average duration of an exchange; recent ones weigh most. */
  usualMs: number;
  /** When the last postponed delivery is to come back. */
  lastReturn: number;
}

/** Time between two postponed deliveries to a failing receiver. */
const failingGapMs = 20;
const longestSpreadMs = 60_000;

/**
 * Limits how many deliveries one endpoint may have running in this process, so that a hanging receiver cannot take all
 * slots. A delivery that finds no free slot waits briefly if one is likely to become free, else it is postponed.
 *
 * Postponed deliveries get return times that are spread by how slow the receiver is: thousands of them cost a few
 * statements per second, not thousands.
 */
export class Gate {
  readonly #perEndpoint: number;
  readonly #patienceMs: number;
  readonly #traffic = new Map<string, Traffic>();

  constructor(options: GateOptions) {
    this.#perEndpoint = options.perEndpoint;
    this.#patienceMs = options.patienceMs ?? 100;
  }

  /** Returns a function that frees the slot; undefined: no slot is free. An endpoint whose last delivery failed has one slot. */
  async enter(
    endpoint: string,
    { isSuspect }: { readonly isSuspect: boolean },
  ): Promise<(() => void) | undefined> {
    const traffic = this.#of(endpoint);
    const limit = isSuspect ? 1 : this.#perEndpoint;
    if (traffic.startedAt.size < limit) return this.#start(endpoint, traffic);
    if (isSuspect || this.#hopeless(traffic)) return undefined;
    const hasRoom = await this.#turn(traffic);
    return hasRoom && traffic.startedAt.size < limit ? this.#start(endpoint, traffic) : undefined;
  }

  /** The endpoint has failed: deliveries that wait must check its state again before they try. */
  dismiss(endpoint: string): void {
    for (const called of this.#of(endpoint).waiting.splice(0)) called(false);
  }

  /** In how many milliseconds a postponed delivery should come back; not before `atLeastMs`. */
  delay(endpoint: string, atLeastMs: number, { isFailing }: { readonly isFailing: boolean }): number {
    const traffic = this.#of(endpoint);
    const now = performance.now();
    const first = now + atLeastMs;
    const gap = Math.max(isFailing ? failingGapMs : 0, this.#usual(traffic) / this.#perEndpoint);
    let at = Math.max(first, traffic.lastReturn + gap);
    if (at > first + longestSpreadMs) at = first + Math.random() * longestSpreadMs;
    else traffic.lastReturn = at;
    this.#forget(endpoint, traffic);
    return at - now;
  }

  #start(endpoint: string, traffic: Traffic): () => void {
    let began = performance.now();
    // A set holds each time once.
    while (traffic.startedAt.has(began)) began += 0.001;
    traffic.startedAt.add(began);
    return () => {
      if (!traffic.startedAt.delete(began)) return;
      traffic.usualMs += (performance.now() - began - traffic.usualMs) / 4;
      traffic.waiting.shift()?.(true);
      this.#forget(endpoint, traffic);
    };
  }

  /** Resolves true when a slot became free, false when the wait has timed out or is pointless. */
  #turn(traffic: Traffic): Promise<boolean> {
    return new Promise((resolve) => {
      const called = (hasRoom: boolean): void => {
        clearTimeout(timer);
        resolve(hasRoom);
      };
      const timer = setTimeout(() => {
        traffic.waiting.splice(traffic.waiting.indexOf(called), 1);
        resolve(false);
      }, this.#patienceMs);
      traffic.waiting.push(called);
    });
  }

  /** While a receiver is unknown, only a few deliveries wait for it. */
  #hopeless(traffic: Traffic): boolean {
    if (traffic.usualMs === 0 && traffic.waiting.length >= this.#perEndpoint) return true;
    return (this.#usual(traffic) * (traffic.waiting.length + 1)) / this.#perEndpoint > this.#patienceMs;
  }

  /** A long running exchange says more than those that ended quickly before it. */
  #usual(traffic: Traffic): number {
    const [oldest] = traffic.startedAt;
    return Math.max(traffic.usualMs, oldest === undefined ? 0 : performance.now() - oldest);
  }

  #of(endpoint: string): Traffic {
    const known = this.#traffic.get(endpoint);
    if (known) return known;
    const traffic: Traffic = { startedAt: new Set(), waiting: [], usualMs: 0, lastReturn: 0 };
    this.#traffic.set(endpoint, traffic);
    return traffic;
  }

  #forget(endpoint: string, traffic: Traffic): void {
    const isIdle = traffic.startedAt.size === 0 && traffic.waiting.length === 0;
    if (isIdle && traffic.lastReturn < performance.now()) this.#traffic.delete(endpoint);
  }
}
