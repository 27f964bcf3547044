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
  have: Frontier,
): Promise<void> {
  const state = await store.state(stream);
  if (!state) return;
  await requireSamePast(store, stream, state, have);
  const opened = await store.openConsumer(stream, consumer, { instance, leaseMs, start: { after: 0 } });
  if (have.offset < opened.cursor) await goBack(store, stream, state, have);
  else if (await store.noteFetched(stream, opened, have.offset))
    await store.confirm(stream, consumer, instance, have.offset);
}
