/** Entries of a log as hashes, and what is wrong with them: what two zones compare. */
import { hash } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { damageOf } from '../audit.ts';
import type { Proof } from '../domain/compare.ts';
import { contentDigest } from '../domain/fact.ts';
import { type FactRecord, isGap } from '../domain/record.ts';
import { type EntryProof, EntryProofSchema } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import type { FactStore, QuarantinedEntry, StoredEntry, StreamId } from '../store/store.ts';

/** More than one record can have, so that a page always goes on. */
const pageBytes = 4 * 1024 * 1024;

/** Empty at the end. Of a gap record that stands for a fact in quarantine: the proof of the fact. */
export async function proofsAfter(
  store: FactStore,
  stream: StreamId,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<Proof[]> {
  // One more than asked for: the first entry is checked against the one before.
  const range = { after: Math.max(0, after - 1), limit: limit + 1, maxBytes: pageBytes };
  const entries = await store.read(stream, range);
  const kept = await quarantinedAmong(store, stream, entries);
  return entries.flatMap((entry, i) =>
    entry.offset > after ? [proofOf(entry, entries[i - 1], kept.get(entry.offset))] : [],
  );
}

async function quarantinedAmong(
  store: FactStore,
  stream: StreamId,
  entries: readonly StoredEntry[],
): Promise<ReadonlyMap<number, QuarantinedEntry>> {
  const gaps = entries.filter(({ record }) => isGap(record));
  const [first] = gaps;
  if (!first) return new Map();
  const epoch = (await store.frontier(stream))?.epoch;
  const rows = await store.quarantined(stream, { after: first.offset - 1, limit: entries.length });
  return new Map(rows.filter((each) => each.epoch === epoch).map((each) => [each.offset, each]));
}

function proofOf(
  entry: StoredEntry,
  before: StoredEntry | undefined,
  quarantined: QuarantinedEntry | undefined,
): Proof {
  const { offset, chain, record, text } = entry;
  const damage = damageOf(entry, before);
  const common = { offset, chain, ...(damage !== undefined && { damage }) };
  if (!isGap(record))
    return { ...common, key: entry.key, digest: entry.digest, textHash: hash('sha256', text) };
  const gap = record.gap.reason;
  if (!quarantined) return { ...common, key: '', digest: '', textHash: '', gap };
  const { messageId: key, text: kept } = quarantined;
  const digest = contentDigest(JSON.parse(kept) as FactRecord);
  return { ...common, key, digest, textHash: hash('sha256', kept), gap };
}

export const proofMessage = ({
  offset,
  key,
  digest,
  textHash,
  chain,
  gap = '',
  damage = '',
}: Proof): EntryProof =>
  create(EntryProofSchema, {
    offset: BigInt(offset),
    key,
    digest,
    recordHash: textHash,
    chain,
    gapReason: gap,
    damage,
  });

export const proofIn = ({
  offset,
  key,
  digest,
  recordHash,
  chain,
  gapReason,
  damage,
}: EntryProof): Proof => ({
  offset: Number(offset),
  key,
  digest,
  textHash: recordHash,
  chain,
  ...(gapReason !== '' && { gap: gapReason }),
  ...(damage !== '' && { damage }),
});
