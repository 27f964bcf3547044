import { randomUUID } from 'node:crypto';
import type { Database } from '../../../../engine/database/database.ts';
import { TenantDatabase } from '../../../../engine/database/tenant.ts';
import { TallymanError } from '../../../../engine/errors.ts';
import { type NewEntry, newEpochChain, type Prepared, prepare } from '../../../../engine/log/entry.ts';
import { Sequence, type Turn } from '../../../../engine/log/sequence.ts';
import { GrowthWaiters, lookUntilGrown } from '../../../../engine/log/waiters.ts';
import { type Frontier, streamName } from '../../domain/delivery.ts';
import { BoundaryError } from '../../domain/errors.ts';
import type { Crossing, FactLog, LogState, TakenOver } from '../log.ts';
import { explained } from '../log-errors.ts';
import { lockFrontier, moveFrontier } from '../postgres/crossings.ts';
import type { Appended, BufferRole, Found, NewFact, ReadOptions, StoredEntry, StreamId } from '../store.ts';
import { Appender } from './appender.ts';
import type { EntryOnServer } from './entries.ts';
import { type Head, offsetAfter, offsetUpTo } from './head.ts';
import { keySpaceOf, Names, streamKey, subjectsOfTenant, zoneIn } from './names.ts';
import { readEntry, readHead, readKey, readPage } from './reads.ts';
import { JetStreamCluster, type JetStreamOptions, type JetStreamSession } from './session.ts';
import { ensureStream, requireSafe } from './streams.ts';
import { takeOver } from './take-over.ts';
import { Turns } from './turns.ts';
import { Writer } from './writer.ts';

const maxPayloadBytes = 1024 * 1024;
const maxWaitingBytes = 64 * 1024 * 1024;
/** Bounds memory if a caller invents stream names. */
const maxStreams = 10_000;

interface StreamWriters {
  readonly writer: Writer;
  readonly appender: Appender;
}

/**
 * Facts on a JetStream cluster. Every change is one atomic batch that names the head it was made from: facts, their keys and
 * the head are stored together or not at all. See docs/decisions/0035.
 */
export class JetStreamLog implements FactLog {
  readonly #database: Database;
  readonly #cluster: JetStreamCluster;
  readonly #turns: Turns;
  readonly #waiters: GrowthWaiters;
  readonly #writers = new Map<string, StreamWriters>();
  #waitingBytes = 0;

  private constructor(database: Database, cluster: JetStreamCluster, turns: Turns, waiters: GrowthWaiters) {
    this.#database = database;
    this.#cluster = cluster;
    this.#turns = turns;
    this.#waiters = waiters;
  }

  /** Throws if the cluster cannot be used safely. The stream of what the zone sends is made, to see that it can be. */
  static async open(
    database: Database,
    options: JetStreamOptions & { readonly tenantId: string; readonly zone: string },
  ): Promise<JetStreamLog> {
    const turns = new Turns();
    const waiters = new GrowthWaiters();
    const cluster = await JetStreamCluster.open(options, {
      onHead: (subject) => turns.noteContender(streamKey(subject)),
      onHint: (subject) => waiters.wake(streamKey(subject)),
      onSession: () => waiters.wakeAll(),
    });
    try {
      const { tenantId, zone, replicas } = options;
      await cluster.call(async (session) => {
        const { streams } = session.manager;
        for await (const name of streams.names(subjectsOfTenant(tenantId)))
          requireSafe(session, await streams.info(name), replicas);
        await ensureStream(session, new Names({ tenantId, buffer: 'store', from: zone }), replicas);
      });
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return new JetStreamLog(database, cluster, turns, waiters);
  }

  get trouble(): string | undefined {
    return this.#cluster.trouble;
  }

  append(stream: StreamId, fact: NewFact): Promise<Appended> {
    return this.#submit(stream, fact);
  }

  async appendAll(stream: StreamId, facts: readonly NewFact[]): Promise<(Appended | Error)[]> {
    const sequence = new Sequence();
    return Promise.all(
      facts.map((fact, n) =>
        this.#submit(stream, fact, { sequence, n }).catch((error: unknown) => error as Error),
      ),
    );
  }

  async appendInOrder(stream: StreamId, facts: readonly NewFact[]): Promise<void> {
    const { writer, appender } = this.#writersOf(stream);
    try {
      await appender.appendInOrder(facts.map((fact) => prepared(writer.names, newEntry(fact))));
    } catch (error) {
      throw explained(error, stream, facts);
    }
  }

  read(stream: StreamId, options: ReadOptions): Promise<StoredEntry[]> {
    const { waitMs = 0, signal } = options;
    const names = new Names(stream);
    const look = async (): Promise<StoredEntry[]> =>
      (await this.#cluster.call((session) => readPage(session, names, stream.to, options))).map(toStored);
    if (waitMs === 0) return look();
    const key = streamKey(names.head(stream.to));
    return lookUntilGrown(look, { waitMs, signal }, (ended) => this.#waiters.await(key, ended));
  }

  find(tenantId: string, buffer: BufferRole, from: string, messageId: string): Promise<Found | undefined> {
    const names = new Names({ tenantId, buffer, from });
    return this.#cluster.call(async (session) => {
      const key = await readKey(session, names, names.key(messageId));
      if (!key) return undefined;
      const { to, offset, digest } = key;
      const known = await readHead(session, names, to);
      // Below the first offset it waits to be purged.
      const isKept = known !== undefined && offset >= known.head.first;
      const entry = isKept ? await readEntry(session, names, to, offset) : undefined;
      return { stream: { tenantId, buffer, from, to }, offset, digest, entry: entry && toStored(entry) };
    });
  }

  async digestOf(stream: StreamId, messageId: string): Promise<string | undefined> {
    const names = new Names(stream);
    const key = await this.#cluster.call((session) => readKey(session, names, names.key(messageId)));
    return key?.digest;
  }

  async state(stream: StreamId): Promise<LogState | undefined> {
    const known = await this.#cluster.call((session) => readHead(session, new Names(stream), stream.to));
    return known && known.head.last > 0 ? stateOf(stream, known.head) : undefined;
  }

  streams(tenantId: string): Promise<LogState[]> {
    return this.#cluster.call(async (session) => {
      const found: LogState[] = [];
      for await (const name of session.manager.streams.names(subjectsOfTenant(tenantId))) {
        const space = keySpaceOf(tenantId, name);
        if (!space) continue;
        const names = new Names(space);
        const info = await session.manager.streams.info(name, { subjects_filter: names.head('*') });
        for (const to of Object.keys(info.state.subjects ?? {}).map(zoneIn)) {
          const known = await readHead(session, names, to);
          if (known && known.head.last > 0) found.push(stateOf({ ...space, to }, known.head));
        }
      }
      const nameOf = ({ buffer, from, to }: StreamId): string => `${buffer}/${from}/${to}`;
      return found.sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
    });
  }

  /** Times never decrease along the offsets: halving finds it. */
  offsetAt(stream: StreamId, at: Date): Promise<number> {
    const names = new Names(stream);
    return this.#cluster.call(async (session) => {
      const known = await readHead(session, names, stream.to);
      if (!known) return 1;
      const { head } = known;
      let low = head.first;
      let high = head.last + 1;
      while (low < high) {
        const middle = Math.floor((low + high) / 2);
        const offset = offsetAfter(head, middle - 1);
        const entry = offset === undefined ? undefined : await readEntry(session, names, stream.to, offset);
        // Not there: it was trimmed meanwhile, so what is asked for lies behind it.
        if (offset !== undefined && entry === undefined) low = offset + 1;
        else if (entry === undefined || entry.appendedAt >= at) high = middle;
        else low = entry.offset + 1;
      }
      return offsetAfter(head, low - 1) ?? head.last + 1;
    });
  }

  /** The head first: what a crash leaves below the first offset is hidden, and purged by the next trim. */
  async trim(stream: StreamId, upTo: number): Promise<number> {
    const { writer } = this.#writersOf(stream);
    const { names, to } = writer;
    let trimmed = 0;
    await writer.change(async (head) => {
      trimmed = 0;
      const end = offsetUpTo(head, upTo);
      if (end === undefined) return undefined;
      const entry = await this.#cluster.call((session) => readEntry(session, names, to, end));
      if (!entry) {
        const now = await this.#cluster.call((session) => readHead(session, names, to));
        // Another process has trimmed it.
        if (now && now.head.first > end) return undefined;
        throw new TallymanError('LOG_DAMAGED', `${streamName(stream)} has no entry at offset ${end}`);
      }
      trimmed = end + 1 - head.first;
      return { ...head, first: end + 1, trimmed: entry.total };
    });
    await this.#cluster.call((session) => purge(session, names, to));
    return trimmed;
  }

  async newEpoch(stream: StreamId, nextOffset: number): Promise<string> {
    const epoch = randomUUID();
    const changed = await this.#writersOf(stream).writer.change(async (head) => {
      // An attempt before was stored after all.
      if (head.epoch === epoch || head.last === 0) return undefined;
      const last = Math.max(head.last, nextOffset - 1);
      const holes = last > head.last ? [...(head.holes ?? []), [head.last + 1, last] as const] : head.holes;
      const chain = newEpochChain(head.chain, epoch);
      return { ...head, epoch, chain, last, ...(holes && { holes }) };
    });
    if (!changed && (await this.state(stream))?.epoch !== epoch)
      throw new TallymanError('STREAM_NOT_FOUND', `there is no ${streamName(stream)}`);
    return epoch;
  }

  async takeOver(stream: StreamId, crossing: Crossing): Promise<TakenOver> {
    const { writer } = this.#writersOf(stream);
    const taken = await takeOver(stream, crossing, {
      cluster: this.#cluster,
      database: this.#database,
      writer,
      turns: this.#turns,
      prepare: (entry) => prepared(writer.names, entry),
    });
    this.#waiters.wake(writer.key);
    return taken;
  }

  async frontier(stream: StreamId): Promise<Frontier | undefined> {
    const known = await this.#cluster.call((session) => readHead(session, new Names(stream), stream.to));
    return known?.head.source;
  }

  /** The log first: should the table not follow, the next delivery completes it. */
  async acceptEpoch(stream: StreamId, epoch: string, chain: string): Promise<Frontier> {
    const on = new TenantDatabase(this.#database, stream.tenantId);
    return on.transaction(async (tx) => {
      const { offset: covered = 0 } = (await lockFrontier(tx, stream)) ?? {};
      let accepted: Frontier = { epoch, offset: 0, chain };
      await this.#writersOf(stream).writer.change(async (head) => {
        const { offset = 0 } = head.source ?? {};
        if (offset !== covered)
          throw new BoundaryError(
            'ABORTED',
            'delivery_incomplete',
            `${streamName(stream)} was received up to offset ${offset}, and its receipts end at ${covered}: a delivery is under ` +
              'way or was cut off. The next attempt to deliver completes it; accept the epoch after that.',
          );
        accepted = { epoch, offset, chain };
        return { ...head, source: accepted };
      });
      await moveFrontier(tx, stream, accepted);
      return accepted;
    });
  }

  async stop(): Promise<void> {
    await this.#cluster.stop();
    this.#waiters.wakeAll();
  }

  async #submit(stream: StreamId, fact: NewFact, turn?: Turn): Promise<Appended> {
    const { writer, appender } = this.#writersOf(stream);
    try {
      const entry = prepared(writer.names, newEntry(fact));
      const held = turn?.sequence.heldBack(turn.n);
      if (held) throw held;
      if (this.#waitingBytes > 0 && this.#waitingBytes + entry.bytes > maxWaitingBytes) {
        turn?.sequence.stop(turn.n, entry.key);
        throw new TallymanError(
          'LOG_BUSY',
          `${this.#waitingBytes} bytes wait to be appended; the limit is ${maxWaitingBytes}. Nothing was written: ` +
            'append again when earlier calls have resolved.',
        );
      }
      this.#waitingBytes += entry.bytes;
      try {
        return await appender.append(turn ? { ...entry, turn } : entry);
      } finally {
        this.#waitingBytes -= entry.bytes;
      }
    } catch (error) {
      throw explained(error, stream, [fact]);
    }
  }

  #writersOf(stream: StreamId): StreamWriters {
    const id = streamKey(new Names(stream).head(stream.to));
    const known = this.#writers.get(id);
    if (known) return known;
    if (this.#writers.size >= maxStreams) this.#writers.clear();
    const writer = new Writer(this.#cluster, this.#turns, stream);
    const onGrown = (): void => this.#waiters.wake(id);
    const writers = { writer, appender: new Appender(this.#cluster, writer, this.#turns, onGrown) };
    this.#writers.set(id, writers);
    return writers;
  }
}

const newEntry = ({ record, digest }: NewFact): NewEntry => ({
  key: record.messageId,
  payload: record,
  digest,
});

const prepared = ({ keyPrefix }: Names, entry: NewEntry): Prepared =>
  prepare(entry, { keyPrefix, maxPayloadBytes });

/** Drops what lies below the first offset. */
async function purge(session: JetStreamSession, names: Names, to: string): Promise<void> {
  const known = await readHead(session, names, to);
  if (!known || known.head.first === 1) return;
  const next = offsetAfter(known.head, 0);
  const entry = next === undefined ? undefined : await readEntry(session, names, to, next);
  // Without an entry that is kept: everything before the head. What is appended later lies behind it.
  const seq = entry?.sequence ?? (next === undefined ? known.sequence : 0);
  if (seq > 0) await session.manager.streams.purge(names.stream, { filter: names.fact(to, '*'), seq });
}

const toStored = ({ sequence: _, total: __, ...entry }: EntryOnServer): StoredEntry => entry;

const stateOf = (stream: StreamId, { epoch, chain, first, last, total, trimmed }: Head): LogState => ({
  ...stream,
  epoch,
  chain,
  first,
  last,
  bytes: total - trimmed,
});
