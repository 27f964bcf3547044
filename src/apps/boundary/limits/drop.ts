/** Makes room in a full stream by dropping its oldest facts, for streams that are configured so. */
import { streamName } from '../domain/delivery.ts';
import type { FactStore, StreamId } from '../store/store.ts';

/** Facts in one note: the receiver fills their places in one delivery. */
const batch = 500;

/**
 * Drops the oldest facts until the stream holds no more than this, whether they have crossed or not. What had not crossed
 * becomes gap records in the other zone. Returns how many facts were dropped.
 */
export async function dropOldest(store: FactStore, stream: StreamId, downToBytes: number): Promise<number> {
  let dropped = 0;
  for (;;) {
    const state = await store.state(stream);
    const excess = (state?.bytes ?? 0) - downToBytes;
    // The newest fact stays: without it the other zone would not hear of those before it.
    if (!state || excess <= 0 || state.first >= state.last) return dropped;
    const oldest = await store.read(stream, {
      after: state.first - 1,
      limit: Math.min(batch, state.last - state.first),
      maxBytes: excess,
    });
    const [first] = oldest;
    const last = oldest.at(-1);
    // Another process has dropped or trimmed them meanwhile.
    if (!first || !last) continue;
    const range = { from: first.offset, to: last.offset, chain: last.chain, epoch: state.epoch };
    const gone = await store.drop(stream, range);
    if (gone === 0 && (await store.state(stream))?.first === state.first)
      throw new Error(`${streamName(stream)}: facts up to ${range.to} could not be dropped`);
    dropped += gone;
  }
}
