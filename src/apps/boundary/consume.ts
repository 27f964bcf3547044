/** Fetching for a consumer: its cursor is kept by the node, and nothing is confirmed by fetching. */
import { streamName } from './domain/delivery.ts';
import { BoundaryError, invalid } from './domain/errors.ts';
import { requireToken } from './domain/text.ts';
import type { FactStore, Position, StoredEntry, StreamId } from './store/store.ts';

export const fetchLimits = { facts: 1000, bytes: 1024 * 1024, waitMs: 60_000 } as const;

/** An instance that is silent for this long after an answer has lost the consumer to the next one that asks. */
export const leaseMs = 30_000;

export interface FetchRequest {
  readonly consumer: string;
  /** Tells two processes of one consumer apart. Default: all that give none are one. */
  readonly instance?: string;
  readonly limit?: number;
  readonly maxBytes?: number;
  readonly waitMs?: number;
  /** Where a consumer begins that is not known yet. Default: with the first fact that is kept. */
  readonly start?: Position;
  readonly signal?: AbortSignal;
}

export interface Fetched {
  readonly entries: readonly StoredEntry[];
  readonly epoch: string | undefined;
  readonly cursor: number;
  /** Facts after the cursor, those of this answer included. */
  readonly backlog: number;
}

export async function fetchFacts(
  store: FactStore,
  stream: StreamId,
  request: FetchRequest,
): Promise<Fetched> {
  const { consumer: name, instance = '', limit = 100, maxBytes = fetchLimits.bytes, waitMs = 0 } = request;
  checkConsumer(name, instance);
  requireWhole(limit, 'limit', 1, fetchLimits.facts);
  requireWhole(maxBytes, 'max_bytes', 1, fetchLimits.bytes);
  requireWhole(waitMs, 'wait_ms', 0, fetchLimits.waitMs);
  const opened = await store.openConsumer(stream, name, {
    instance,
    leaseMs: leaseMs + waitMs,
    start: request.start ?? { after: 0 },
  });
  const { cursor } = opened;
  const entries = await store.read(stream, {
    after: cursor,
    limit,
    maxBytes,
    waitMs,
    ...(request.signal && { signal: request.signal }),
  });
  const last = entries.at(-1);
  // Before the answer: what is not noted cannot be confirmed. Another instance may have taken over meanwhile.
  if (last && !(await store.noteFetched(stream, opened, last.offset)))
    throw new BoundaryError(
      'ABORTED',
      'consumer_taken_over',
      `consumer "${name}" of ${streamName(stream)} was taken over by another instance, moved or deleted meanwhile: fetch again`,
    );
  const state = await store.state(stream);
  const behind = Math.max(cursor, (state?.first ?? 1) - 1);
  return { entries, epoch: state?.epoch, cursor, backlog: Math.max(0, (state?.last ?? 0) - behind) };
}

export async function confirmReceipt(
  store: FactStore,
  stream: StreamId,
  {
    consumer,
    instance = '',
    offset,
  }: { readonly consumer: string; readonly instance?: string; readonly offset: number },
): Promise<number> {
  checkConsumer(consumer, instance);
  requireWhole(offset, 'offset', 0, Number.MAX_SAFE_INTEGER);
  return store.confirm(stream, consumer, instance, offset);
}

function checkConsumer(name: string, instance: string): void {
  requireToken(name, 'consumer_name', 256);
  if (instance !== '') requireToken(instance, 'instance_id', 256);
}

function requireWhole(value: number, field: string, min: number, max: number): void {
  if (!Number.isSafeInteger(value) || value < min || value > max)
    throw invalid(field, `must be a whole number from ${min} to ${max}, got ${value}`);
}
