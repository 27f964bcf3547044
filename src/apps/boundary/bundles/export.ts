/** Writes a range of a stream into a bundle: facts and the objects that they name. */
import { firstChain, newEpochChain, nextChain } from '../../../engine/log/entry.ts';
import { type DroppedRange, streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { ReceiptKey } from '../domain/receipt.ts';
import { isGap } from '../domain/record.ts';
import { chainAt, droppedAfter, peerConsumer } from '../handoff/source.ts';
import { lossIn, type Objects } from '../objects/objects.ts';
import type { FactStore, StoredEntry, StreamId, StreamState } from '../store/store.ts';
import { type BundleHeader, type BundleManifest, bundleFormat, linesOf, names, sizes } from './format.ts';
import { BundleWriter } from './write.ts';

export interface ExportOptions {
  readonly store: FactStore;
  readonly objects: Pick<Objects, 'get'>;
  /** A store buffer of this node. */
  readonly stream: StreamId;
  /** The key that this zone signs receipts with. */
  readonly key: ReceiptKey;
  /** Facts that the receiver takes in one transaction. Default 500. */
  readonly chunkFacts?: number;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

export interface ExportRange {
  /** Default: what the other zone has confirmed. */
  readonly after?: number;
  /** Default: the last fact. */
  readonly upTo?: number;
}

/**
 * The file has its name when it is complete and durable. Nothing is confirmed by it: that is what the receipts are for that come
 * back (`importReceipts`). Undefined: there is nothing to carry, and no file.
 */
export async function exportBundle(
  options: ExportOptions,
  path: string,
  range: ExportRange = {},
): Promise<BundleManifest | undefined> {
  const { store, stream, key, now = Date.now } = options;
  const state = await store.state(stream);
  if (!state) return undefined;
  const after = range.after ?? (await confirmedBy(store, stream));
  const upTo = Math.min(range.upTo ?? state.last, state.last);
  if (after >= upTo) return undefined;
  const start = await startAfter(store, stream, state, after);
  const { tenantId, from, to } = stream;
  const header: BundleHeader = {
    format: bundleFormat,
    kind: 'facts',
    tenantId,
    from,
    to,
    epoch: state.epoch,
    firstOffset: after + 1,
    chainBefore: start.chainBefore,
    createdAt: now(),
  };
  const write = async (isEachObjectRead: boolean): Promise<BundleManifest> => {
    const writer = await BundleWriter.create(path, header);
    try {
      const end = await writeFacts(writer, options, { ...start, after, upTo, isEachObjectRead });
      return await writer.finish(end, key);
    } catch (error) {
      await writer.abandon();
      throw error;
    }
  };
  try {
    return await write(false);
  } catch (error) {
    if (lossIn(error) === undefined) throw error;
    // What is lost is said with the facts, before their objects: read each object first.
    return await write(true);
  }
}

async function confirmedBy(store: FactStore, stream: StreamId): Promise<number> {
  const name = peerConsumer(stream.to);
  return (await store.consumers(stream)).find((each) => each.name === name)?.cursor ?? 0;
}

interface Start {
  readonly chainBefore: string;
  /** What was dropped right after the offset. */
  readonly dropped: readonly DroppedRange[];
}

/** The chain hash that the first fact follows from. A bundle can begin where that is known. */
async function startAfter(
  store: FactStore,
  stream: StreamId,
  state: StreamState,
  after: number,
): Promise<Start> {
  const { epoch } = state;
  const dropped = state.first > after + 1 ? await droppedAfter(store, stream, state, after) : [];
  const [first] = await store.read(stream, { after, limit: 1, maxBytes: 1 });
  const from = { after: Math.max(0, after - 1), limit: 1 };
  const [receipt] = await store.receipts(stream, from);
  const [exported] = await store.exported(stream, from);
  const known = [
    after === 0 ? firstChain(epoch) : await chainAt(store, stream, { epoch, offset: after }),
    receipt?.toOffset === after ? receipt.chain : undefined,
    exported?.to === after ? exported.chain : undefined,
  ].filter((chain) => chain !== undefined);
  // The first fact of a new epoch follows from the chain hash that the epoch begins with; see log_new_epoch.
  const candidates = [...known, ...known.map((chain) => newEpochChain(chain, epoch))];
  const chainBefore = dropped[0]
    ? known[0]
    : candidates.find((chain) => first?.offset === after + 1 && nextChain(chain, first) === first.chain);
  if (chainBefore === undefined)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'not_exportable',
      `${streamName(stream)} cannot be exported after offset ${after}: the fact that follows was trimmed, or what comes before it ` +
        `is not known here. The first fact that is kept has offset ${state.first}.`,
    );
  return { chainBefore, dropped };
}

interface Span extends Start {
  readonly after: number;
  readonly upTo: number;
  /** To find those that are lost, before they are written. */
  readonly isEachObjectRead: boolean;
}

async function writeFacts(
  writer: BundleWriter,
  { store, objects, stream, chunkFacts = sizes.chunkFacts }: ExportOptions,
  { after, upTo, chainBefore, dropped, isEachObjectRead }: Span,
): Promise<{ lastOffset: number; chain: string }> {
  let lastOffset = after;
  let chain = chainBefore;
  let passed = dropped;
  while (lastOffset < upTo) {
    const first = lastOffset + 1;
    const start = passed.at(-1) ?? { to: lastOffset, chain };
    const limit = Math.min(chunkFacts, Math.max(1, upTo - start.to));
    const read = await store.read(stream, { after: start.to, limit, maxBytes: sizes.chunkBytes });
    const entries = start.to < upTo && read[0]?.offset === start.to + 1 ? read : [];
    if (entries.length === 0 && passed.length === 0) {
      passed = await droppedSince(store, stream, lastOffset);
      continue;
    }
    chain = requireSound(stream, entries, { offset: start.to, chain: start.chain });
    const references = referencesIn(entries);
    const lost = isEachObjectRead ? await lostOf(objects, stream, references) : new Map<string, string>();
    const lines = [
      ...passed.map((each) => ({ droppedFrom: each.from, droppedTo: each.to, chain: each.chain })),
      ...entries.map(({ offset, key, digest, chain: own, text, record }) => {
        const objectLost = isGap(record) ? undefined : lost.get(record.reference?.digest ?? '');
        return { offset, key, digest, chain: own, record: text, ...(objectLost && { objectLost }) };
      }),
    ];
    await writer.add(names.facts(first), linesOf(lines));
    for (const reference of references)
      if (!lost.has(reference.digest)) await writeObject(writer, objects, stream, first, reference);
    lastOffset = entries.at(-1)?.offset ?? start.to;
    passed = [];
  }
  return { lastOffset, chain };
}

/** The next fact is not there: it was dropped, or it was trimmed during the export. */
async function droppedSince(store: FactStore, stream: StreamId, after: number): Promise<DroppedRange[]> {
  const state = await store.state(stream);
  const dropped = state ? await droppedAfter(store, stream, state, after) : [];
  if (dropped.length === 0) throw trimmedMeanwhile(stream, after);
  return dropped;
}

/** What is damaged here must not be carried elsewhere: the receiver would refuse it, days later. */
function requireSound(
  stream: StreamId,
  entries: readonly StoredEntry[],
  before: { readonly offset: number; readonly chain: string },
): string {
  let { offset, chain } = before;
  for (const entry of entries) {
    if (entry.offset !== offset + 1) throw trimmedMeanwhile(stream, offset);
    chain = nextChain(chain, entry);
    if (chain !== entry.chain)
      throw new BoundaryError(
        'FAILED_PRECONDITION',
        'chain_mismatch',
        `${streamName(stream)}: the chain hash at offset ${entry.offset} ("${entry.key}") does not follow from the one before. A new ` +
          `epoch begins there: export up to ${offset}, then after it. Or the fact was changed in the database: see zones reconcile.`,
      );
    offset = entry.offset;
  }
  return chain;
}

const trimmedMeanwhile = (stream: StreamId, offset: number): BoundaryError =>
  new BoundaryError(
    'ABORTED',
    'trimmed',
    `${streamName(stream)}: facts after offset ${offset} were trimmed during the export; export again`,
  );

/** By digest, in the order of the facts: the same bytes once for each chunk. */
function referencesIn(entries: readonly StoredEntry[]): ObjectReference[] {
  const references = new Map<string, ObjectReference>();
  for (const { record } of entries)
    if (!isGap(record) && record.reference && !references.has(record.reference.digest))
      references.set(record.reference.digest, record.reference);
  return [...references.values()];
}

/** By digest: why an object cannot be carried. */
async function lostOf(
  objects: Pick<Objects, 'get'>,
  { tenantId }: StreamId,
  references: readonly ObjectReference[],
): Promise<Map<string, string>> {
  const lost = new Map<string, string>();
  for (const { bucket, key, digest } of references)
    try {
      const { bytes } = await objects.get({ tenantId, bucket, key });
      for await (const _ of bytes);
    } catch (error) {
      const why = lossIn(error);
      if (why === undefined) throw error;
      lost.set(digest, why);
    }
  return lost;
}

async function writeObject(
  writer: BundleWriter,
  objects: Pick<Objects, 'get'>,
  { tenantId }: StreamId,
  first: number,
  { bucket, key, digest }: ObjectReference,
): Promise<void> {
  const { info, bytes } = await objects.get({ tenantId, bucket, key });
  if (info.digest !== digest)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'object_differs',
      `object "${key}" in bucket "${bucket}" has the digest ${info.digest}, and a fact names it with ${digest}`,
    );
  await writer.addStream(names.object(first, digest), info.size, bytes);
}
