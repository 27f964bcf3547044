export interface GateOptions {
  /** The most deliveries that this process runs at once for one endpoint. */
  readonly perEndpoint: number;
  /** The most deliveries that this process runs at once. One tenant gets only a part of them. Default: no limit for a tenant. */
  readonly slots?: number;
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

/** Whose delivery wants to start. */
export interface Entrant {
  readonly endpoint: string;
  readonly tenant: string;
}

/**
 * A tenant may have so many times the slots that are free: three quarters of all when it is alone, three sevenths beside
 * another one. Whatever tenants do, some slots are left for the next one.
 */
const timesFree = 3;
/** Time between two postponed deliveries to a failing receiver. */
const failingGapMs = 20;
const longestSpreadMs = 60_000;

/**
 * Limits how many deliveries one endpoint may have running in this process, so that a hanging receiver cannot take all
 * slots, and how many one tenant may have, so that many slow receivers cannot. A delivery that finds no free slot waits
 * briefly if its endpoint is likely to free one, else it is postponed.
 *
 * Postponed deliveries get return times that are spread by how slow the receiver is: thousands of them cost a few
 * statements per second, not thousands.
 */
export class Gate {
  readonly #perEndpoint: number;
  readonly #patienceMs: number;
  readonly #slots: number;
  readonly #traffic = new Map<string, Traffic>();
  readonly #tenants = new Map<string, Traffic>();
  #running = 0;

  constructor(options: GateOptions) {
    this.#perEndpoint = options.perEndpoint;
    this.#patienceMs = options.patienceMs ?? 100;
    this.#slots = options.slots ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Returns a function that frees the slot; undefined: no slot is free. An endpoint whose last delivery failed has one slot.
   */
  async enter(
    entrant: Entrant,
    { isSuspect }: { readonly isSuspect: boolean },
  ): Promise<(() => void) | undefined> {
    const traffic = of(this.#traffic, entrant.endpoint);
    const limit = isSuspect ? 1 : this.#perEndpoint;
    if (this.#isFull(entrant.tenant)) return undefined;
    if (traffic.startedAt.size < limit) return this.#start(entrant, traffic);
    if (isSuspect || this.#hopeless(traffic)) return undefined;
    const hasRoom = await this.#turn(traffic);
    return hasRoom && traffic.startedAt.size < limit && !this.#isFull(entrant.tenant)
      ? this.#start(entrant, traffic)
      : undefined;
  }

  /** The endpoint has failed: deliveries that wait must check its state again before they try. */
  dismiss(endpoint: string): void {
    for (const called of of(this.#traffic, endpoint).waiting.splice(0)) called(false);
  }

  /** In how many milliseconds a postponed delivery should come back; not before `atLeastMs`. */
  delay(
    { endpoint, tenant }: Entrant,
    atLeastMs: number,
    { isFailing }: { readonly isFailing: boolean },
  ): number {
    const now = performance.now();
    const first = now + atLeastMs;
    // Deliveries that wait for their tenant's slots share one line, whatever their endpoints are.
    const isTenantFull = !isFailing && this.#isFull(tenant);
    const traffic = isTenantFull ? of(this.#tenants, tenant) : of(this.#traffic, endpoint);
    const places = isTenantFull ? traffic.startedAt.size : this.#perEndpoint;
    const gap = Math.max(isFailing ? failingGapMs : 0, this.#usual(traffic) / places);
    let at = Math.max(first, traffic.lastReturn + gap);
    if (at > first + longestSpreadMs) at = first + Math.random() * longestSpreadMs;
    else traffic.lastReturn = at;
    forget(this.#traffic, endpoint);
    return at - now;
  }

  /** The tenant has its share of the slots. Without any it always gets one. */
  #isFull(tenant: string): boolean {
    const running = this.#tenants.get(tenant)?.startedAt.size ?? 0;
    return running > 0 && running >= timesFree * (this.#slots - this.#running);
  }

  #start({ endpoint, tenant }: Entrant, traffic: Traffic): () => void {
    const ofTenant = of(this.#tenants, tenant);
    let began = performance.now();
    // A set holds each time once.
    while (traffic.startedAt.has(began) || ofTenant.startedAt.has(began)) began += 0.001;
    for (const { startedAt } of [traffic, ofTenant]) startedAt.add(began);
    this.#running += 1;
    return () => {
      if (!traffic.startedAt.delete(began)) return;
      this.#running -= 1;
      ofTenant.startedAt.delete(began);
      for (const each of [traffic, ofTenant]) each.usualMs += (performance.now() - began - each.usualMs) / 4;
      traffic.waiting.shift()?.(true);
      forget(this.#traffic, endpoint);
      forget(this.#tenants, tenant);
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
}

function of(all: Map<string, Traffic>, name: string): Traffic {
  const known = all.get(name);
  if (known) return known;
  const traffic: Traffic = { startedAt: new Set(), waiting: [], usualMs: 0, lastReturn: 0 };
  all.set(name, traffic);
  return traffic;
}

/** Nothing of it runs or waits, or is to come back. */
function forget(all: Map<string, Traffic>, name: string): void {
  const traffic = all.get(name);
  if (!traffic) return;
  const isIdle = traffic.startedAt.size === 0 && traffic.waiting.length === 0;
  if (isIdle && traffic.lastReturn < performance.now()) all.delete(name);
}
