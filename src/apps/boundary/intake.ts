/** From a fact as a producer sends it to its offset: checked, its object held, room found, appended. */
import { BoundaryError, heldBack, invalid } from './domain/errors.ts';
import { checkFact, contentDigest, type Fact, type FactInput } from './domain/fact.ts';
import { recordOf } from './domain/record.ts';
import { slugOf, type Zone, type Zones } from './domain/zones.ts';
import type { Admission } from './limits/admission.ts';
import type { Objects } from './objects/objects.ts';
import type { Appended, FactStore, NewFact, StreamId } from './store/store.ts';

export interface IntakeOptions {
  /** The zone of this node: facts are appended where they come from. */
  readonly zone: Zone;
  readonly zones: Zones;
  readonly store: FactStore;
  readonly admission: Admission;
  readonly objects: Pick<Objects, 'hold'>;
  /** A hold counts for this long; see `CollectOptions.holdGraceMs`. */
  readonly holdGraceMs: number;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

export interface Caller {
  readonly tenantId: string;
  /** Throws if the caller may not append this. */
  readonly authorize: (fact: Fact) => void;
}

/** Bytes of a record beside its object, about: what is exact is read from the storage every second. */
const aboutARecord = 400;

type Outcome = { readonly appended: Appended } | { readonly refused: Error };

/** A fact that can be appended now. */
interface Ready {
  readonly stream: StreamId;
  readonly fact: Fact;
  readonly made: NewFact;
  /** On the clock of `performance`: since when its object is held. */
  readonly heldAt?: number;
  /** It is in already. */
  readonly found?: Appended;
}

export class Intake {
  readonly #options: IntakeOptions;
  readonly #now: () => number;
  #underWay = 0;

  constructor(options: IntakeOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
  }

  /** Whether appends are under way in this process: a backlog that drains lets them go first. */
  get isBusy(): boolean {
    return this.#underWay > 0;
  }

  /** Resolves when the fact is durable here; never waits for the other zone. */
  append(caller: Caller, input: FactInput): Promise<Appended> {
    return this.#during(async () => {
      const { stream, made, found } = await this.#renewHold(await this.#prepare(caller, input));
      return found ?? this.#options.store.append(stream, made);
    });
  }

  /** An outcome for each, in order; those that are appended get their offsets in this order. */
  appendAll(caller: Caller, inputs: readonly FactInput[]): Promise<Outcome[]> {
    return this.#during(() => this.#appendAll(caller, inputs));
  }

  /**
   * Facts of one stream whose order counts, without stored objects. An error for each that can never be taken, in their order.
   * Throws if one cannot be taken now: those before it may be in, those behind it are not.
   */
  appendInOrder(caller: Caller, inputs: readonly FactInput[]): Promise<(Error | undefined)[]> {
    return this.#during(() => this.#appendInOrder(caller, inputs));
  }

  async #during<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    try {
      return await work();
    } finally {
      this.#underWay -= 1;
    }
  }

  async #appendAll(caller: Caller, inputs: readonly FactInput[]): Promise<Outcome[]> {
    const prepared = await Promise.allSettled(inputs.map((input) => this.#prepare(caller, input)));
    const outcomes: Outcome[] = [];
    const byZone = new Map<string, { readonly stream: StreamId; readonly facts: [i: number, NewFact][] }>();
    for (const [i, each] of withHeldBack(inputs, await this.#renewHolds(prepared)).entries()) {
      if (each.status === 'rejected') {
        outcomes[i] = { refused: each.reason as Error };
        continue;
      }
      const { stream, made, found } = each.value;
      if (found) {
        outcomes[i] = { appended: found };
        continue;
      }
      const those = byZone.get(stream.to) ?? { stream, facts: [] };
      those.facts.push([i, made]);
      byZone.set(stream.to, those);
    }
    await Promise.all(
      [...byZone.values()].map(async ({ stream, facts }) => {
        const answers = await this.#options.store.appendAll(
          stream,
          facts.map(([, made]) => made),
        );
        for (const [n, answer] of answers.entries())
          outcomes[facts[n]?.[0] ?? 0] = answer instanceof Error ? { refused: answer } : { appended: answer };
      }),
    );
    return outcomes;
  }

  async #appendInOrder(caller: Caller, inputs: readonly FactInput[]): Promise<(Error | undefined)[]> {
    const { store, admission } = this.#options;
    const refusals: (Error | undefined)[] = inputs.map(() => undefined);
    const ready: { readonly i: number; readonly stream: StreamId; readonly made: NewFact }[] = [];
    let notNow: unknown;
    for (const [i, input] of inputs.entries()) {
      try {
        const { stream, fact, made } = this.#check(caller, input);
        await admission.admit(stream, fact.object.length + aboutARecord);
        ready.push({ i, stream, made });
      } catch (error) {
        if (!isForGood(error)) {
          notNow = error;
          break;
        }
        refusals[i] = error;
      }
    }
    const [first] = ready;
    if (first) {
      try {
        await store.appendInOrder(
          first.stream,
          ready.map(({ made }) => made),
        );
      } catch (error) {
        if (!isForGood(error)) throw error;
        for (const { i, stream, made } of ready)
          refusals[i] = await store.appendInOrder(stream, [made]).then(
            () => undefined,
            (each: unknown) => {
              if (isForGood(each)) return each;
              throw each;
            },
          );
      }
    }
    if (notNow !== undefined) throw notNow;
    return refusals;
  }

  #check(caller: Caller, input: FactInput): { stream: StreamId; fact: Fact; made: NewFact } {
    const { zone, zones } = this.#options;
    const fact = checkFact(input, zones);
    caller.authorize(fact);
    if (fact.from !== zone) throw elsewhere(fact.from, zone);
    const stream: StreamId = { tenantId: caller.tenantId, buffer: 'store', from: fact.from, to: fact.to };
    return { stream, fact, made: { record: recordOf(fact, this.#now()), digest: contentDigest(fact) } };
  }

  /**
   * Everything that may take time, but for the append itself. The hold comes before that, so that the object cannot go before
   * its fact is in.
   */
  async #prepare(caller: Caller, input: FactInput): Promise<Ready> {
    const { store, admission } = this.#options;
    const { stream, fact, made } = this.#check(caller, input);
    try {
      await admission.admit(stream, fact.object.length + aboutARecord);
    } catch (error) {
      // A retry of what is in needs no room, also after it was trimmed.
      const found = await store.find(caller.tenantId, 'store', fact.from, fact.messageId);
      if (!found || !made.digest.startsWith(found.digest)) throw error;
      return { stream, fact, made, found: { offset: found.offset, existing: true } };
    }
    if (!fact.reference) return { stream, fact, made };
    await this.#hold(stream, fact);
    return { stream, fact, made, heldAt: performance.now() };
  }

  /** A process that was paused since does not rely on a hold that may have been released. */
  async #renewHold(ready: Ready): Promise<Ready> {
    if (this.#isOld(ready)) await this.#hold(ready.stream, ready.fact);
    return ready;
  }

  async #renewHolds(prepared: PromiseSettledResult<Ready>[]): Promise<PromiseSettledResult<Ready>[]> {
    if (!prepared.some((each) => each.status === 'fulfilled' && this.#isOld(each.value))) return prepared;
    return Promise.allSettled(
      prepared.map((each) =>
        each.status === 'fulfilled' ? this.#renewHold(each.value) : Promise.reject(each.reason),
      ),
    );
  }

  #isOld({ heldAt }: Ready): boolean {
    return heldAt !== undefined && performance.now() - heldAt > this.#options.holdGraceMs / 2;
  }

  async #hold({ tenantId, buffer, from, to }: StreamId, { reference, messageId }: Fact): Promise<void> {
    if (!reference) return;
    const { bucket, key, digest } = reference;
    await this.#options.objects.hold({ tenantId, bucket, key, digest, buffer, from, to, messageId });
  }
}

/**
 * A fact that cannot be taken now keeps back those behind it that go to the same zone: a caller that sends them again has them
 * in order. One that can never be taken keeps back nothing.
 */
function withHeldBack<T>(
  inputs: readonly FactInput[],
  prepared: readonly PromiseSettledResult<T>[],
): PromiseSettledResult<T>[] {
  const stuck = new Map<string, string>();
  return prepared.map((each, i) => {
    const { toZone = '', messageId = '' } = inputs[i] ?? {};
    const before = stuck.get(slugOf(toZone));
    if (each.status === 'rejected') {
      if (before === undefined && mayPass(each.reason)) stuck.set(slugOf(toZone), messageId);
      return each;
    }
    return before === undefined ? each : { status: 'rejected' as const, reason: heldBack(before) };
  });
}

const mayPass = (error: unknown): boolean =>
  !(error instanceof BoundaryError) || error.code === 'RESOURCE_EXHAUSTED' || error.code === 'UNAVAILABLE';

/** What the fact itself is the cause of. Anything else may be otherwise the next time. */
const isForGood = (error: unknown): error is Error =>
  error instanceof BoundaryError
    ? error.code === 'INVALID_ARGUMENT' || error.code === 'ALREADY_EXISTS'
    : /^(22|23|54)/.test((error as { code?: string }).code ?? '');

const elsewhere = (from: Zone, zone: Zone): BoundaryError =>
  invalid(
    'envelope.from_zone',
    `is "${from}", and this node belongs to zone "${zone}": append facts in the zone they come from`,
  );
