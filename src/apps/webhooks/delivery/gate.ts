export interface GateOptions {
  /** Deliveries under way to one endpoint from this process. */
  readonly perEndpoint: number;
  /** How long a delivery may wait here for its turn, in a slot of the worker. Default 100. */
  readonly patienceMs?: number;
}

interface Traffic {
  readonly startedAt: Set<number>;
  /** Each is told whether there is room for it. */
  readonly waiting: ((hasRoom: boolean) => void)[];
  /** How long an exchange takes, the latest counting most. */
  usualMs: number;
  /** When the last of those that were put off is to come back. */
  lastReturn: number;
}

/** Between the returns of two that wait for a receiver which fails: it is not waiting for them. */
const failingGapMs = 20;
const longestSpreadMs = 60_000;

/**
 * How many deliveries one endpoint may have under way in this process, so that a receiver that hangs cannot take all
 * slots. Who finds no room waits for a moment if there is reason to hope, else is sent away.
 *
 * Those that are sent away get times to come back that lie as far apart as the receiver is slow: thousands of them cost
 * a few statements a second, not thousands.
 */
export class Gate {
  readonly #perEndpoint: number;
  readonly #patienceMs: number;
  readonly #traffic = new Map<string, Traffic>();

  constructor(options: GateOptions) {
    this.#perEndpoint = options.perEndpoint;
    this.#patienceMs = options.patienceMs ?? 100;
  }

  /** A function to leave by; undefined: no room. An endpoint that failed last has room for one. */
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

  /** The endpoint has failed: those that wait came when it was well, and are to look again before they try. */
  dismiss(endpoint: string): void {
    for (const called of this.#of(endpoint).waiting.splice(0)) called(false);
  }

  /** In how many milliseconds one that was sent away should come back; not before `atLeastMs`. */
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
    // A set holds each moment once.
    while (traffic.startedAt.has(began)) began += 0.001;
    traffic.startedAt.add(began);
    return () => {
      if (!traffic.startedAt.delete(began)) return;
      traffic.usualMs += (performance.now() - began - traffic.usualMs) / 4;
      traffic.waiting.shift()?.(true);
      this.#forget(endpoint, traffic);
    };
  }

  /** Resolves true when somebody has left, false when patience or hope ends. */
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

  /** As long as nothing is known about a receiver, few wait for it. */
  #hopeless(traffic: Traffic): boolean {
    if (traffic.usualMs === 0 && traffic.waiting.length >= this.#perEndpoint) return true;
    return (this.#usual(traffic) * (traffic.waiting.length + 1)) / this.#perEndpoint > this.#patienceMs;
  }

  /** An exchange that has been under way for long says more than those that ended quickly before it. */
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
