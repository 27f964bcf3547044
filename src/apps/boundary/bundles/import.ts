/**
 * Takes a bundle of facts into the forward buffer, in two passes over the file. The first one checks all of it and changes nothing; the
 * second one takes chunk after chunk as the hand-off does: objects first, then facts, frontier, quarantine and receipt in one
 * transaction. A process that dies leaves whole chunks; importing again goes on behind them.
 */
import { type Delivery, type Frontier, requireEpoch, streamName, wayBack } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { Receipt, SignedReceipt } from '../domain/receipt.ts';
import { isGap } from '../domain/record.ts';
import { type ReceiveLimits, receivedEntry, referenceIn } from '../handoff/receive.ts';
import type { ObjectInfo, ObjectName } from '../objects/names.ts';
import type { Objects } from '../objects/objects.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import { BadBundle, type BundleHeader, type BundleManifest, type KeyOf } from './format.ts';
import { type Chunk, walkBundle } from './walk.ts';

export interface ImportOptions {
  readonly store: FactStore;
  readonly objects: Objects;
  /** The zone of this node: facts come in that go to it. */
  readonly zone: string;
  readonly tenantId: string;
  /** The keys of other zones. */
  readonly keyOf: KeyOf;
  readonly sign: (receipt: Receipt) => SignedReceipt;
  readonly limits?: ReceiveLimits;
  /** Ends it between two chunks. What was taken is sound; importing again goes on behind it. */
  readonly signal?: AbortSignal;
  /** Hears of each chunk that is durable here. */
  readonly onProgress?: (frontier: Frontier) => void;
}

export interface Imported {
  readonly stream: StreamId;
  readonly manifest: BundleManifest;
  /** Undefined: nothing was ever received. */
  readonly frontier: Frontier | undefined;
  /** Offsets that are new here, gap records included. 0: the bundle changed nothing. */
  readonly taken: number;
  /** How many of them are in quarantine. */
  readonly quarantined: number;
}

export async function importBundle(options: ImportOptions, path: string): Promise<Imported> {
  const { store, keyOf } = options;
  const verified = await verify(options, path);
  const { stream, manifest, ends } = verified;
  const before = verified.frontier;
  const told = { stream, manifest };
  if (before && before.offset >= manifest.lastOffset)
    return { ...told, frontier: before, taken: 0, quarantined: 0 };
  let frontier = before;
  let quarantined = 0;
  let n = 0;
  const sizes = new Map<string, number>();
  const isNew = ({ end }: Chunk): boolean => end.offset > (frontier?.offset ?? 0);
  await walkBundle(
    path,
    { kind: 'facts', keyOf },
    {
      object: async (chunk, digest, size, bytes) => {
        requireSame(ends[n], chunk);
        sizes.set(digest, size);
        if (isNew(chunk))
          await takeObject(options, stream, { digest, size, bytes }, chunk.objects.get(digest) ?? []);
      },
      chunk: async (chunk) => {
        requireSame(ends[n], chunk);
        n += 1;
        if (isNew(chunk)) {
          options.signal?.throwIfAborted();
          quarantined += await takeFacts(options, stream, chunk, { sizes, frontier });
          frontier = await store.frontier(stream);
          if (frontier) options.onProgress?.(frontier);
        }
        sizes.clear();
      },
    },
  );
  return { ...told, frontier, taken: (frontier?.offset ?? 0) - (before?.offset ?? 0), quarantined };
}

interface Verified {
  readonly stream: StreamId;
  readonly manifest: BundleManifest;
  readonly frontier: Frontier | undefined;
  /** The chain hash at the end of each chunk: in the second pass the file must still be the same. */
  readonly ends: readonly Frontier[];
}

async function verify(
  { store, zone, tenantId, keyOf, signal }: ImportOptions,
  path: string,
): Promise<Verified> {
  const ends: Frontier[] = [];
  let stream: StreamId | undefined;
  let frontier: Frontier | undefined;
  /** The source's chain hash where the frontier is, as the bundle has it. */
  let chainThere: string | undefined;
  let isOther = false;
  const manifest = await walkBundle(
    path,
    { kind: 'facts', keyOf },
    {
      header: async (header) => {
        stream = streamOf(header, { zone, tenantId });
        frontier = await store.frontier(stream);
        if (frontier?.offset === header.firstOffset - 1) chainThere = header.chainBefore;
      },
      chunk: async ({ delivery, end }) => {
        signal?.throwIfAborted();
        ends.push(end);
        const at = delivery.entries.find(({ offset }) => offset === frontier?.offset);
        if (at) chainThere = at.chain;
        if (stream && frontier && !isOther) isOther = await hasOtherFacts(store, stream, frontier, delivery);
      },
    },
  );
  if (!stream) throw new Error('a bundle without a header was read');
  if (frontier) requireFits(stream, frontier, manifest, isOther || isOtherChain(frontier, chainThere));
  else if (manifest.firstOffset > 1) throw gap(stream, 0, manifest.firstOffset);
  return { stream, manifest, frontier, ends };
}

function streamOf(
  { tenantId: ofBundle, from, to }: BundleHeader,
  { zone, tenantId }: { readonly zone: string; readonly tenantId: string },
): StreamId {
  if (to !== zone || ofBundle !== tenantId)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'wrong_stream',
      `the bundle has ${streamName({ from, to })} of tenant "${ofBundle}"; this node belongs to zone "${zone}" and tenant "${tenantId}"`,
    );
  return { tenantId, buffer: 'forward', from, to };
}

function requireFits(
  stream: StreamId,
  frontier: Frontier,
  { epoch, firstOffset }: BundleManifest,
  isOther: boolean,
): void {
  requireEpoch(frontier, epoch, stream);
  if (firstOffset > frontier.offset + 1) throw gap(stream, frontier.offset, firstOffset);
  if (isOther)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'chain_mismatch',
      `${streamName(stream)}: the bundle has other facts up to offset ${frontier.offset} than were received: facts were changed, or ` +
        `the source was restored from a backup. Nothing was taken; compare both sides. After a restore: ${wayBack(frontier, stream)}`,
    );
}

const isOtherChain = ({ chain }: Frontier, chainThere: string | undefined): boolean =>
  chainThere !== undefined && chainThere !== chain;

/**
 * Whether a fact that was received, and is kept, is another one at the source. Without it, a source that was restored and has not come
 * as far as before would have all that it sends taken for known.
 */
async function hasOtherFacts(
  store: FactStore,
  stream: StreamId,
  frontier: Frontier,
  { entries }: Delivery,
): Promise<boolean> {
  const known = entries.filter(({ offset }) => offset <= frontier.offset);
  const sent = new Map(known.map((each) => [each.offset, each]));
  const last = known.at(-1)?.offset ?? 0;
  for (let after = (known[0]?.offset ?? 1) - 1; after < last; ) {
    const received = await store.read(stream, { after, limit: last - after, maxBytes: 4 * 1024 * 1024 });
    for (const { offset, key, digest, record } of received) {
      const other = sent.get(offset);
      if (other && !isGap(record) && (other.key !== key || other.digest !== digest)) return true;
    }
    const end = received.at(-1);
    if (!end) break;
    after = end.offset;
  }
  return false;
}

const gap = (stream: StreamId, reached: number, first: number): BoundaryError =>
  new BoundaryError(
    'FAILED_PRECONDITION',
    'offset_gap',
    `${streamName(stream)} was received up to offset ${reached}, and the bundle begins at ${first}: import the one with ` +
      `offset ${reached + 1} first. Nothing was taken.`,
    { details: { missing_from: reached + 1, missing_to: first - 1 } },
  );

/** A medium can be exchanged or fail between the passes. What was taken until then is sound: each chunk was compared. */
function requireSame(end: Frontier | undefined, chunk: Chunk): void {
  if (end?.offset !== chunk.end.offset || end.chain !== chunk.end.chain)
    throw new BadBundle(
      `offset ${chunk.first}`,
      'the file has changed while it was imported; import it again when it is whole',
    );
}

async function takeObject(
  { objects }: ImportOptions,
  { tenantId }: StreamId,
  {
    digest,
    size,
    bytes,
  }: { readonly digest: string; readonly size: number; readonly bytes: AsyncIterable<Uint8Array> },
  references: readonly ObjectReference[],
): Promise<void> {
  // Its facts go into quarantine.
  if (size > objects.maxBytes) return;
  let stored: ObjectName | undefined;
  const absent: { readonly name: ObjectName; readonly mediaType: string | undefined }[] = [];
  for (const { bucket, key, mediaType } of references) {
    const name = { tenantId, bucket, key };
    const here = await infoOf(objects, name);
    // Other bytes under this name: the fact goes into quarantine.
    if (!here) absent.push({ name, mediaType });
    else if (here.digest === digest) stored = name;
  }
  for (const { name, mediaType } of absent) {
    await objects.put(name, stored ? (await objects.get(stored)).bytes : bytes, { digest, mediaType, size });
    stored = name;
  }
}

function infoOf(objects: Objects, name: ObjectName): Promise<ObjectInfo | undefined> {
  return objects.info(name).catch((error: unknown) => {
    if (error instanceof BoundaryError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  });
}

/** Returns how many facts went into quarantine. */
async function takeFacts(
  { store, objects, sign, limits }: ImportOptions,
  stream: StreamId,
  { delivery, lost }: Chunk,
  {
    sizes,
    frontier,
  }: { readonly sizes: ReadonlyMap<string, number>; readonly frontier: Frontier | undefined },
): Promise<number> {
  const entries = await Promise.all(
    delivery.entries.map((entry) => {
      if (entry.offset <= (frontier?.offset ?? 0)) return entry;
      const { text: record, ...rest } = entry;
      const objectBytes = sizes.get(referenceIn(record)?.digest ?? '') ?? 0;
      const objectLost = lost.get(entry.offset) ?? '';
      return receivedEntry(objects, stream, { ...rest, record, objectBytes, objectLost }, limits);
    }),
  );
  try {
    const { quarantined } = await store.deliver(stream, { ...delivery, entries }, sign);
    return quarantined.length;
  } catch (error) {
    // Another process has imported it meanwhile, and more.
    if (error instanceof BoundaryError && error.reason === 'behind_frontier') return 0;
    throw error;
  }
}
