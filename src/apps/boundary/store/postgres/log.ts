import type { Database } from '../../../../engine/database/database.ts';
import { TenantDatabase, withinTenant } from '../../../../engine/database/tenant.ts';
import { TallymanError } from '../../../../engine/errors.ts';
import type { LogEntry, NewEntry } from '../../../../engine/log/entry.ts';
import { Log } from '../../../../engine/log/log.ts';
import type { StreamInfo, StreamName } from '../../../../engine/log/stream.ts';
import type { Frontier } from '../../domain/delivery.ts';
import {
  type Crossing,
  type CrossingPlan,
  type FactLog,
  type LogState,
  TakenIds,
  type TakenOver,
} from '../log.ts';
import { explained, keyIn } from '../log-errors.ts';
import { recordIn } from '../record-in.ts';
import type { Appended, BufferRole, Found, NewFact, ReadOptions, StoredEntry, StreamId } from '../store.ts';
import { frontier, lockFrontier, moveFrontier } from './crossings.ts';
import { LogStreams, streamIdOf } from './log-streams.ts';

const pageOfStreams = 1000;

/** Facts in the engine's log. A delivery is one transaction: facts, quarantine, receipt and frontier, or nothing. */
export class PostgresLog implements FactLog {
  readonly #database: Database;
  readonly #log: Log;
  readonly #streams = new LogStreams();
  /** Without PostgreSQL nothing of a node works: that is told elsewhere. */
  readonly trouble = undefined;

  constructor(database: Database) {
    this.#database = database;
    this.#log = new Log(database);
  }

  async append(stream: StreamId, fact: NewFact): Promise<Appended> {
    try {
      return await this.#log.append(this.#streams.of(stream), newEntry(fact));
    } catch (error) {
      throw explained(error, stream, [fact]);
    }
  }

  async appendAll(stream: StreamId, facts: readonly NewFact[]): Promise<(Appended | Error)[]> {
    const answers = await this.#log.appendAll(this.#streams.of(stream), facts.map(newEntry));
    return answers.map((answer, i) =>
      answer instanceof Error ? (explained(answer, stream, facts.slice(i, i + 1)) as Error) : answer,
    );
  }

  /** One transaction: all of them or none. */
  async appendInOrder(stream: StreamId, facts: readonly NewFact[]): Promise<void> {
    const name = this.#streams.of(stream);
    try {
      await this.#database.transaction((tx) => this.#log.appendWithin(tx, name, facts.map(newEntry)));
    } catch (error) {
      throw explained(error, stream, await this.#factsAtFault(error, name, facts));
    }
    this.#log.grew(name);
  }

  /** Of several, the database does not say which one has a message id that other content has taken: look it up. */
  async #factsAtFault(
    error: unknown,
    stream: StreamName,
    facts: readonly NewFact[],
  ): Promise<readonly NewFact[]> {
    if (facts.length === 1 || !isConflict(error) || keyIn(error) !== undefined) return facts;
    for (const fact of facts) {
      const taken = await this.#log.find(stream, fact.record.messageId);
      if (taken && !fact.digest.startsWith(taken.digest)) return [fact];
    }
    return facts;
  }

  async read(stream: StreamId, options: ReadOptions): Promise<StoredEntry[]> {
    return (await this.#log.read(this.#streams.of(stream), options)).map(toStored);
  }

  async find(
    tenantId: string,
    buffer: BufferRole,
    from: string,
    messageId: string,
  ): Promise<Found | undefined> {
    const found = await this.#log.find(this.#streams.ofKeySpace(tenantId, buffer, from), messageId);
    const stream = found && streamIdOf({ tenantId, name: found.stream });
    if (!stream) return undefined;
    const { offset, digest, entry } = found;
    return { stream, offset, digest, entry: entry && toStored(entry) };
  }

  async digestOf(stream: StreamId, messageId: string): Promise<string | undefined> {
    return (await this.#log.find(this.#streams.of(stream), messageId))?.digest;
  }

  async state(stream: StreamId): Promise<LogState | undefined> {
    const info = await this.#log.stream(this.#streams.of(stream));
    return info && toState(stream, info);
  }

  async streams(tenantId: string): Promise<LogState[]> {
    const found: LogState[] = [];
    for (let after = ''; ; ) {
      const page = await this.#log.streams({ tenantId, after, limit: pageOfStreams });
      for (const info of page) {
        const stream = streamIdOf(info);
        if (stream) found.push(toState(stream, info));
      }
      after = page.at(-1)?.name ?? '';
      if (page.length < pageOfStreams) return found;
    }
  }

  offsetAt(stream: StreamId, at: Date): Promise<number> {
    return this.#log.offsetAt(this.#streams.of(stream), at);
  }

  trim(stream: StreamId, upTo: number): Promise<number> {
    return this.#log.trim(this.#streams.of(stream), upTo);
  }

  newEpoch(stream: StreamId, nextOffset: number): Promise<string> {
    return this.#log.newEpoch(this.#streams.of(stream), nextOffset);
  }

  async takeOver(stream: StreamId, crossing: Crossing): Promise<TakenOver> {
    const { tenantId } = stream;
    const taken = await this.#database.transaction(async (tx): Promise<TakenOver> => {
      const before = await withinTenant(tx, tenantId, () => lockFrontier(tx, stream));
      const plan = crossing.plan(before);
      if (!plan) return { frontier: before };
      const from = (before?.offset ?? 0) + 1;
      await this.#append(tx, stream, plan, from);
      await withinTenant(tx, tenantId, async () => {
        await moveFrontier(tx, stream, plan.frontier);
        await crossing.keepRefused(tx, plan);
        await crossing.keepReceived(tx, { from, reached: plan.frontier, facts: plan.delivered });
      });
      return { frontier: plan.frontier };
    });
    this.#log.grew(this.#streams.of(stream));
    return taken;
  }

  frontier(stream: StreamId): Promise<Frontier | undefined> {
    return frontier(new TenantDatabase(this.#database, stream.tenantId), stream);
  }

  acceptEpoch(stream: StreamId, epoch: string, chain: string): Promise<Frontier> {
    return new TenantDatabase(this.#database, stream.tenantId).transaction(async (tx) => {
      const { offset = 0 } = (await lockFrontier(tx, stream)) ?? {};
      await moveFrontier(tx, stream, { epoch, offset, chain });
      return { epoch, offset, chain };
    });
  }

  stop(): Promise<void> {
    return this.#log.stop();
  }

  async #append(
    tx: Parameters<Log['appendWithin']>[0],
    stream: StreamId,
    { entries, delivered }: CrossingPlan,
    offset: number,
  ): Promise<void> {
    try {
      const appended = await this.#log.appendWithin(tx, this.#streams.of(stream), entries, { offset });
      if (appended.every(({ existing }) => !existing)) return;
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
    // It aborts the transaction. The ids are looked up outside of it: a lookup takes a connection of its own.
    throw new TakenIds(delivered);
  }
}

const newEntry = ({ record, digest }: NewFact): NewEntry => ({
  key: record.messageId,
  payload: record,
  digest,
});

const isConflict = (error: unknown): error is TallymanError =>
  error instanceof TallymanError && error.code === 'CONFLICTING_DUPLICATE';

const toStored = ({ offset, key, digest, chain, text, payload, appendedAt }: LogEntry): StoredEntry => ({
  offset,
  key,
  digest,
  chain,
  text,
  record: recordIn(payload, `${key} at offset ${offset}`),
  appendedAt,
});

const toState = (stream: StreamId, { epoch, chain, first, last, bytes }: StreamInfo): LogState => ({
  ...stream,
  epoch,
  chain,
  first,
  last,
  bytes,
});
