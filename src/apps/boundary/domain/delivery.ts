/**
 * Whether what a peer delivers fits what was received before: the same epoch, no offset left out, and every chain hash as it
 * follows from the one before. A source that was restored from a backup issues offsets again for other facts; its chain
 * hashes then differ, so that nothing is skipped and nothing is taken for what it is not.
 */
import { firstChain, nextChain } from '../../../engine/log/entry.ts';
import { BoundaryError } from './errors.ts';
import { contentDigest } from './fact.ts';
import type { FactRecord } from './record.ts';
import { recordProblem } from './record-check.ts';

/** An entry of the source's log. */
export interface DeliveredEntry {
  readonly offset: number;
  /** The message id. */
  readonly key: string;
  readonly digest: string;
  readonly chain: string;
  /** The record, byte for byte. */
  readonly text: string;
  /** Why the receiver cannot take it: it goes into quarantine. */
  readonly refusal?: { readonly reason: string; readonly message: string };
}

export interface Delivery {
  readonly epoch: string;
  /** Offsets before the first entry that the source has dropped, in order: gap records take their places. */
  readonly dropped?: readonly DroppedRange[];
  /** Of the entry before the first one. */
  readonly chainBefore: string;
  readonly entries: readonly DeliveredEntry[];
}

/** Offsets of a source's log. */
export interface ChainedRange {
  readonly from: number;
  readonly to: number;
  /** The source's chain hash at `to`: what follows is checked against it. */
  readonly chain: string;
}

/** Facts that a source has dropped before they crossed, because their stream was full. */
export type DroppedRange = ChainedRange;

const sha256 = /^[0-9a-f]{64}$/;

/** Gap records that one delivery may bring. */
export const mostDropped = 1000;

/** How far a stream has come: everything up to the offset is durable. */
export interface Frontier {
  readonly epoch: string;
  readonly offset: number;
  readonly chain: string;
}

/** Where every epoch begins that is the first of its stream: nothing has crossed. */
export const startFrontier = (epoch: string): Frontier => ({ epoch, offset: 0, chain: firstChain(epoch) });

/** A new entry, with what its text says. Of one that is refused, the record may be anything. */
export interface CheckedEntry extends DeliveredEntry {
  readonly record: FactRecord;
}

/**
 * Passes over what the source has dropped: returns the offsets beyond the frontier that need gap records, and the frontier
 * behind them. Its chain hash there is the source's word; every entry after it is checked against it.
 */
export function passDropped(
  frontier: Frontier,
  { epoch, dropped = [] }: Delivery,
  zones: ZonePair,
): { readonly frontier: Frontier; readonly gaps: readonly DroppedRange[] } {
  const gaps: DroppedRange[] = [];
  let reached = frontier;
  if (dropped.length > 0) requireEpoch(frontier, epoch, zones);
  for (const { from, to, chain } of dropped) {
    if (to <= reached.offset) continue;
    if (from > reached.offset + 1) throw gapBefore(streamName(zones), reached.offset, from);
    if (!sha256.test(chain)) throw broken(streamName(zones), to);
    gaps.push({ from: reached.offset + 1, to, chain });
    reached = { epoch, offset: to, chain };
  }
  if (reached.offset - frontier.offset > mostDropped)
    throw refused(
      'too_many_dropped',
      `${streamName(zones)}: a delivery passes over ${reached.offset - frontier.offset} dropped facts; the limit is ${mostDropped}`,
    );
  return { frontier: reached, gaps };
}

/** Returns the entries beyond the frontier, or throws. An entry that no reader could read is refused. */
export function checkDelivery(frontier: Frontier, delivery: Delivery, zones: ZonePair): CheckedEntry[] {
  const { epoch, chainBefore, entries } = delivery;
  const stream = streamName(zones);
  const [first] = entries;
  if (!first) return [];
  requireEpoch(frontier, epoch, zones);
  if (first.offset > frontier.offset + 1) throw gapBefore(stream, frontier.offset, first.offset);
  const last = first.offset + entries.length - 1;
  // To compare it takes the chain hash at the frontier: an older one is not known, and would prove nothing.
  if (last < frontier.offset)
    throw refused(
      'behind_frontier',
      `${stream} was received up to offset ${frontier.offset}; this delivery ends at ${last}. Compare the chain hash at the frontier, and go on from there.`,
    );
  let chain = first.offset === frontier.offset + 1 ? frontier.chain : chainBefore;
  if (chainBefore !== chain) throw broken(stream, first.offset - 1);
  return entries.flatMap((entry, i) => {
    if (entry.offset !== first.offset + i)
      throw refused('offset_gap', `${stream}: offset ${entry.offset} follows ${first.offset + i - 1}`);
    chain = nextChain(chain, entry);
    if (chain !== entry.chain || (entry.offset === frontier.offset && chain !== frontier.chain))
      throw broken(stream, entry.offset);
    return entry.offset > frontier.offset ? [checked(entry, zones)] : [];
  });
}

export function requireEpoch(frontier: Frontier, epoch: string, zones: ZonePair): void {
  if (epoch !== frontier.epoch)
    throw refused(
      'epoch_mismatch',
      `${streamName(zones)} is known here in epoch ${frontier.epoch}, and epoch ${epoch} was delivered: its source was restored or replaced. ` +
        `Nothing was taken. ${wayBack(frontier, zones)}`,
    );
}

/** The commands that bring a stream back whose source was restored. */
export const wayBack = ({ offset }: Pick<Frontier, 'offset'>, { from, to }: ZonePair): string =>
  `In zone "${from}" run: tallyman zones new-epoch ${to} --after ${offset}; ` +
  `in zone "${to}" then run the command that it prints (tallyman zones accept-epoch).`;

const gapBefore = (stream: string, reached: number, first: number): BoundaryError =>
  refused(
    'offset_gap',
    `${stream} was received up to offset ${reached}; a delivery must begin at ${reached + 1} or before, and this one begins at ${first}`,
  );

/** The chain hash covers key, digest and text; that they belong together, and to this stream, is checked here. */
function checked(entry: DeliveredEntry, zones: ZonePair): CheckedEntry {
  const record = parsed(entry.text);
  const at = `${streamName(zones)}: the record at offset ${entry.offset} ("${entry.key}")`;
  if (record?.v !== 1)
    throw refused('unknown_version', `${at} has a version that this node does not know: upgrade this node`);
  if (record.from !== zones.from || record.to !== zones.to)
    throw refused('wrong_stream', `${at} goes from "${record.from}" to "${record.to}"`);
  const problem = recordProblem(record);
  if (problem !== undefined)
    return { ...entry, record, refusal: entry.refusal ?? { reason: 'invalid_record', message: problem } };
  if (record.messageId !== entry.key || contentDigest(record) !== entry.digest)
    throw refused('digest_mismatch', `${at} does not fit its message id or digest`);
  // It is stored as JSON.stringify writes it; the source's node did the same.
  if (JSON.stringify(record) !== entry.text)
    throw refused('digest_mismatch', `${at} is not written as a node writes it`);
  return { ...entry, record };
}

function parsed(text: string): FactRecord | undefined {
  try {
    return JSON.parse(text) ?? undefined;
  } catch {
    return undefined;
  }
}

export interface ZonePair {
  readonly from: string;
  readonly to: string;
}

/** For people. */
export const streamName = ({ from, to }: ZonePair): string => `stream ${from} → ${to}`;

const broken = (stream: string, offset: number): BoundaryError =>
  refused(
    'chain_mismatch',
    `${stream}: the chain hash at offset ${offset} is not what follows from what was received: facts were changed, or the source was restored from a backup. Nothing was taken; compare both sides (zones reconcile).`,
  );

const refused = (reason: string, message: string): BoundaryError =>
  new BoundaryError('FAILED_PRECONDITION', reason, message);
