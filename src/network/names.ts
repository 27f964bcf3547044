import { lookup, Resolver } from 'node:dns/promises';
import { TallymanError } from '../engine/errors.ts';
import { endsWithin } from '../engine/resilience/deadline.ts';
import { Semaphore } from '../engine/resilience/semaphore.ts';

/**
 * Names that tenants choose. Whoever owns a name decides how long its lookup takes, and two ways of looking up differ in what
 * such a lookup holds:
 *
 * - **DNS** asks the name servers of this machine over the event loop. It can be given up, and holds nothing that others need. It
 *   knows neither /etc/hosts nor search domains. Names for which only public addresses are allowed are looked up like this.
 * - **The system** (getaddrinfo) knows all that, but keeps a thread until it ends, for half a minute if a name server does not
 *   answer, and cannot be given up. Names that may lead to private addresses need it: the operator has allowed these, and they
 *   often stand in /etc/hosts or in a search domain. libuv gives lookups half of its threads, which is two (UV_THREADPOOL_SIZE
 *   is four): PostgreSQL, brokers and other zones need one of them, so tenants' names never have both.
 */
export interface NameOptions {
  /** How long a caller waits. Default 5000. */
  readonly timeoutMs?: number;
  /** Name servers, for tests. Default: those of this machine. */
  readonly servers?: readonly string[];
  readonly lookup?: (name: string) => Promise<readonly string[]>;
}

const usualTimeoutMs = 5000;
/** One query; the second goes to the next name server, where there is one. */
const queryMs = 2000;
const queries = 2;
/** A name that took too long for the system is left alone for so long: its thread is for other names. */
const restMs = 30_000;
const mostResting = 1000;

const threads = Number(process.env.UV_THREADPOOL_SIZE) || 4;
export const lookupsAtOnce = Math.max(1, Math.ceil(threads / 2) - 1);

/** The addresses of a name, from name servers alone. */
export async function fromDns(name: string, options: NameOptions = {}): Promise<readonly string[]> {
  const { timeoutMs = usualTimeoutMs, servers } = options;
  // One for each lookup: it reads the configuration of this machine as it is now, and is given up without others.
  const resolver = new Resolver({ timeout: Math.min(queryMs, timeoutMs), tries: queries });
  if (servers) resolver.setServers(servers);
  try {
    const asked = Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
    if (!(await endsWithin(asked, timeoutMs))) throw tooSlow(name, timeoutMs);
    const answers = await asked;
    const addresses = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
    if (addresses.length > 0) return addresses;
    const [failure] = answers.flatMap((answer) =>
      answer.status === 'rejected' && !hasNone.has(codeOf(answer.reason)) ? [answer.reason] : [],
    );
    if (failure === undefined) return [];
    throw codeOf(failure) === 'ETIMEOUT' ? tooSlow(name, timeoutMs) : failure;
  } finally {
    resolver.cancel();
  }
}

const hasNone: ReadonlySet<unknown> = new Set(['ENODATA', 'ENOTFOUND']);
/** Nobody listens where this machine has its name servers: it looks names up in some other way. */
export const hasNoServer = (error: unknown): boolean => codeOf(error) === 'ECONNREFUSED';

/** Lookups by the system, so many at once. */
export class SystemNames {
  readonly #turns = new Semaphore(lookupsAtOnce);
  readonly #underWay = new Map<string, Promise<readonly string[]>>();
  /** Until when. */
  readonly #resting = new Map<string, number>();

  async resolve(name: string, options: NameOptions = {}): Promise<readonly string[]> {
    const { timeoutMs = usualTimeoutMs } = options;
    if ((this.#resting.get(name) ?? 0) > performance.now()) throw tooSlow(name, timeoutMs);
    const found = this.#underWay.get(name) ?? this.#begin(name, options);
    if (!(await endsWithin(found, timeoutMs))) throw tooSlow(name, timeoutMs);
    return found;
  }

  #begin(
    name: string,
    { timeoutMs = usualTimeoutMs, lookup = bySystem }: NameOptions,
  ): Promise<readonly string[]> {
    // Leaves the line when nobody waits for it any more. Once it has begun it goes on, and keeps its turn as long as its thread.
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(tooSlow(name, timeoutMs)), timeoutMs);
    const found = this.#turns
      .run(async () => {
        clearTimeout(timer);
        const began = performance.now();
        try {
          return await lookup(name);
        } finally {
          if (performance.now() - began > timeoutMs) this.#rest(name);
        }
      }, patience.signal)
      .finally(() => {
        clearTimeout(timer);
        this.#underWay.delete(name);
      });
    found.catch(() => {});
    this.#underWay.set(name, found);
    return found;
  }

  #rest(name: string): void {
    if (this.#resting.size >= mostResting) this.#resting.clear();
    this.#resting.set(name, performance.now() + restMs);
  }
}

const bySystem = async (name: string): Promise<readonly string[]> =>
  (await lookup(name, { all: true })).map(({ address }) => address);

const codeOf = (error: unknown): unknown => (error as { code?: unknown } | undefined)?.code;

const tooSlow = (name: string, ms: number): TallymanError =>
  new TallymanError('NAME_TIMEOUT', `the address of ${name} could not be found within ${ms} ms`);
