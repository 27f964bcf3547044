import { firstChain } from '../../../engine/log/entry.ts';
import { type FetchRequest, leaseMs } from '../consume.ts';
import type { Frontier } from '../domain/delivery.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import { goBack, requireSamePast } from './source.ts';

/**
 * A peer that pulls says what it has. Once that was compared with the log here it counts as confirmed; a peer that was
 * restored, and has less than it confirmed before, gets it again.
 */
export async function resumeAt(
  store: FactStore,
  stream: StreamId,
  { consumer, instance = '' }: FetchRequest,
  reached: Frontier | undefined,
): Promise<void> {
  const state = await store.state(stream);
  if (!state) return;
  const have = reached ?? { epoch: state.epoch, offset: 0, chain: firstChain(state.epoch) };
  await requireSamePast(store, stream, state, have);
  const opened = await store.openConsumer(stream, consumer, { instance, leaseMs, start: { after: 0 } });
  if (have.offset < opened.cursor) await goBack(store, stream, state, have);
  else if (await store.noteFetched(stream, opened, have.offset))
    await store.confirm(stream, consumer, instance, have.offset);
}
