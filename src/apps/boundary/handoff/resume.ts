import { type FetchRequest, leaseMs } from '../consume.ts';
import { type Frontier, startFrontier } from '../domain/delivery.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import { goBack, requireSamePast } from './source.ts';

/**
 * A peer that pulls says what it has, which is compared with the log here. What it has and has not confirmed yet it may confirm
 * now, with the receipts for it; a peer that was restored, and has less than it confirmed before, gets it again.
 */
export async function resumeAt(
  store: FactStore,
  stream: StreamId,
  { consumer, instance = '' }: FetchRequest,
  reached: Frontier | undefined,
): Promise<void> {
  const state = await store.state(stream);
  if (!state) return;
  const have = reached ?? startFrontier(state.epoch);
  await requireSamePast(store, stream, state, have);
  const opened = await store.openConsumer(stream, consumer, { instance, leaseMs, start: { after: 0 } });
  if (have.offset < opened.cursor) await goBack(store, stream, state, have);
  else await store.noteFetched(stream, opened, have.offset);
}
