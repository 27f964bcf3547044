/**
 * A delivery into a forward buffer on JetStream. The log and the tables cannot share a transaction, so the order is:
 *
 *   1. rows in quarantine for what cannot be taken
 *   2. batches of entries, each with the frontier of the source in its head
 *   3. the receipt for everything that no receipt covers yet
 *
 * The table's frontier says up to where receipts cover. After a crash the next delivery goes on behind what is in the log,
 * and its receipt begins where the last one ended.
 */
import type { Database } from '../../../../engine/database/database.ts';
import { TenantDatabase } from '../../../../engine/database/tenant.ts';
import { messageOf } from '../../../../engine/errors.ts';
import type { Prepared } from '../../../../engine/log/entry.ts';
import { type Frontier, streamName } from '../../domain/delivery.ts';
import { isGap } from '../../domain/record.ts';
import { type Crossing, type CrossingPlan, type Received, TakenIds, type TakenOver } from '../log.ts';
import { lockFrontier, moveFrontier } from '../postgres/crossings.ts';
import type { StoredEntry, StreamId } from '../store.ts';
import { mostMessages } from './commit.ts';
import { messagesFor } from './entries.ts';
import { isUnavailable } from './errors.ts';
import type { Head } from './head.ts';
import { readPage } from './reads.ts';
import type { JetStreamCluster, JetStreamSession } from './session.ts';
import type { Turns } from './turns.ts';
import type { Writer } from './writer.ts';

export interface TakeOverOptions {
  readonly cluster: JetStreamCluster;
  readonly database: Database;
  readonly writer: Writer;
  readonly turns: Turns;
  readonly prepare: (entry: CrossingPlan['entries'][number]) => Prepared;
}

const mostTextInABatch = 4 * 1024 * 1024;

export function takeOver(stream: StreamId, crossing: Crossing, options: TakeOverOptions): Promise<TakenOver> {
  return options.writer.alone(async () => {
    const waitToRetry = options.cluster.retryUntilDeadline();
    const noteConflict = options.writer.watchConflicts();
    for (let failures = 0; ; failures += 1) {
      try {
        const taken = await attempt(stream, crossing, options, noteConflict);
        if (taken) return taken;
        await options.turns.again(failures);
      } catch (error) {
        options.writer.forget();
        if (!isUnavailable(error)) throw error;
        await waitToRetry(error);
      }
    }
  });
}

/** Undefined: another process has moved the head meanwhile, or is about to. */
async function attempt(
  stream: StreamId,
  crossing: Crossing,
  options: TakeOverOptions,
  noteConflict: (isUnexplained: boolean) => void,
): Promise<TakenOver | undefined> {
  const { writer, database } = options;
  const session = await writer.session();
  let known = await writer.head(session);
  const before = known.head.source;
  const plan = await planned(stream, crossing, session, before, options);
  if (!plan) return { frontier: before };
  await new TenantDatabase(database, stream.tenantId).transaction((tx) => crossing.keepRefused(tx, plan));
  for (const { entries, source } of parts(plan, known.head, before, options)) {
    const outcome = await writer.append(session, known, entries, source);
    // Parts before this one are in: their ids are taken by themselves.
    if (outcome === 'key-taken' && (await hasTakenKey(session, writer, entries)))
      throw new TakenIds(notIn(plan.delivered, known.head));
    noteConflict(outcome === 'key-taken');
    if (outcome !== 'done') return undefined;
    known = await writer.head(session);
  }
  await keepReceived(stream, crossing, plan.frontier, plan.delivered, session, options);
  return { frontier: plan.frontier };
}

const notIn = (delivered: CrossingPlan['delivered'], { last }: Head): CrossingPlan['delivered'] =>
  delivered.filter(({ offset }) => offset > last);

async function hasTakenKey(
  session: JetStreamSession,
  writer: Writer,
  entries: readonly Prepared[],
): Promise<boolean> {
  const isTwice = new Set(entries.map(({ key }) => key)).size < entries.length;
  return isTwice || (await writer.keys(session, entries)).some((key) => key !== undefined);
}

/** If nothing is new, or the delivery is refused, it still completes what a crash has left without a receipt. */
async function planned(
  stream: StreamId,
  crossing: Crossing,
  session: JetStreamSession,
  before: Frontier | undefined,
  options: TakeOverOptions,
): Promise<CrossingPlan | undefined> {
  const complete = async (): Promise<void> => {
    if (before) await keepReceived(stream, crossing, before, [], session, options);
  };
  let plan: CrossingPlan | undefined;
  try {
    plan = crossing.plan(before);
  } catch (refusal) {
    await complete().catch((error: unknown) =>
      options.database.logger.warn(
        { stream: streamName(stream), error: messageOf(error) },
        'the receipt that an earlier delivery left out cannot be kept now; the next delivery tries again',
      ),
    );
    throw refusal;
  }
  if (!plan) await complete();
  return plan;
}

interface Part {
  readonly entries: readonly Prepared[];
  readonly source: Frontier | undefined;
}

/**
 * Splits a plan by what fits into a batch. Within a range that the source has dropped its chain hash is not known: the frontier
 * stays before it until the range is complete, and a delivery after a crash leaves out what is in the log already.
 */
function* parts(
  { entries, delivered, frontier }: CrossingPlan,
  head: Head,
  before: Frontier | undefined,
  { prepare }: TakeOverOptions,
): Generator<Part> {
  const chains = new Map(delivered.map(({ offset, chain }) => [offset, chain]));
  chains.set(frontier.offset, frontier.chain);
  let source = before;
  let last = head.last;
  let part: Prepared[] = [];
  let messages = 1;
  let bytes = 0;
  const cut = (): Part => {
    last += part.length;
    const chain = chains.get(last);
    if (chain !== undefined) source = { epoch: frontier.epoch, offset: last, chain };
    const made = { entries: part, source };
    part = [];
    messages = 1;
    bytes = 0;
    return made;
  };
  for (const entry of entries.slice(head.last - (before?.offset ?? 0)).map(prepare)) {
    const isFull = messages + messagesFor(entry) > mostMessages || bytes + entry.bytes > mostTextInABatch;
    if (isFull && part.length > 0) yield cut();
    part.push(entry);
    messages += messagesFor(entry);
    bytes += entry.bytes;
  }
  if (part.length > 0) yield cut();
}

async function keepReceived(
  stream: StreamId,
  crossing: Crossing,
  reached: Frontier,
  delivered: Received['facts'],
  session: JetStreamSession,
  options: TakeOverOptions,
): Promise<void> {
  const on = new TenantDatabase(options.database, stream.tenantId);
  await on.transaction(async (tx) => {
    const { offset: covered = 0 } = (await lockFrontier(tx, stream)) ?? {};
    // Another process has signed for it meanwhile.
    if (covered >= reached.offset) return;
    const begin = delivered[0]?.offset ?? reached.offset + 1;
    const left = begin > covered + 1 ? await factsBetween(session, options.writer, covered, begin) : [];
    await moveFrontier(tx, stream, reached);
    const facts = [...left, ...delivered];
    await crossing.keepReceived(tx, { from: covered + 1, reached, facts });
  });
}

async function factsBetween(
  session: JetStreamSession,
  { names, to }: Writer,
  after: number,
  before: number,
): Promise<Received['facts']> {
  const found: StoredEntry[] = [];
  for (let at = after; ; ) {
    const page = await readPage(session, names, to, { after: at, limit: 1000, maxBytes: mostTextInABatch });
    found.push(...page.filter(({ offset }) => offset < before));
    at = page.at(-1)?.offset ?? before;
    if (at >= before - 1) break;
  }
  return found.flatMap(({ offset, record }) => (isGap(record) ? [] : [{ offset, record }]));
}
