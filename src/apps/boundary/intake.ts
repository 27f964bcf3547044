/** From a fact as a producer sends it to its offset: checked, its object held, room found, appended. */
import { BoundaryError, invalid } from './domain/errors.ts';
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
      const appendNow = await this.#prepare(caller, input);
      return appendNow();
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
    const prepared = heldBack(
      inputs,
      await Promise.allSettled(inputs.map((input) => this.#prepare(caller, input))),
    );
    const outcomes = await Promise.allSettled(
      prepared.map((each) => (each.status === 'fulfilled' ? each.value() : Promise.reject(each.reason))),
    );
    return outcomes.map((each) =>
      each.status === 'fulfilled' ? { appended: each.value } : { refused: each.reason as Error },
    );
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

  /** Everything that may take time, but for the append itself. */
  async #prepare(caller: Caller, input: FactInput): Promise<() => Promise<Appended>> {
    const { store, admission } = this.#options;
    const { stream, fact, made } = this.#check(caller, input);
    const { tenantId } = caller;
    try {
      await admission.admit(stream, fact.object.length + aboutARecord);
    } catch (error) {
      // A retry of what is in needs no room, also after it was trimmed.
      const found = await store.find(tenantId, 'store', fact.from, fact.messageId);
      if (!found || !made.digest.startsWith(found.digest)) throw error;
      return async () => ({ offset: found.offset, existing: true });
    }
    return fact.reference ? this.#held(stream, fact, made) : () => store.append(stream, made);
  }

  /**
   * The hold comes first, so that the object cannot go before its fact is in. A process that was paused in between does not
   * rely on a hold that may have been released.
   */
  async #held(stream: StreamId, fact: Fact, made: NewFact): Promise<() => Promise<Appended>> {
    const { store, holdGraceMs } = this.#options;
    await this.#hold(stream, fact);
    const heldAt = performance.now();
    return async () => {
      if (performance.now() - heldAt > holdGraceMs / 2) await this.#hold(stream, fact);
      return store.append(stream, made);
    };
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
function heldBack<T>(
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
    return before === undefined ? each : { status: 'rejected' as const, reason: behind(before) };
  });
}

const mayPass = (error: unknown): boolean =>
  !(error instanceof BoundaryError) || error.code === 'RESOURCE_EXHAUSTED' || error.code === 'UNAVAILABLE';

/** What the fact itself is the cause of. Anything else may be otherwise the next time. */
const isForGood = (error: unknown): error is Error =>
  error instanceof BoundaryError
    ? error.code === 'INVALID_ARGUMENT' || error.code === 'ALREADY_EXISTS'
    : /^(22|23|54)/.test((error as { code?: string }).code ?? '');

const behind = (messageId: string): BoundaryError =>
  new BoundaryError(
    'ABORTED',
    'held_back',
    `fact "${messageId}", which comes before it, cannot be taken now: send both again`,
  );

const elsewhere = (from: Zone, zone: Zone): BoundaryError =>
  invalid(
    'envelope.from_zone',
    `is "${from}", and this node belongs to zone "${zone}": append facts in the zone they come from`,
  );
