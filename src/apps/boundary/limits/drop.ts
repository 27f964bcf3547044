/** Makes room in a full stream by dropping its oldest facts, for streams that are configured so. */
import { mostDropped, streamName } from '../domain/delivery.ts';
import type { Dropped, FactStore, StreamId } from '../store/store.ts';

/** Facts in one note: the receiver fills their places in one delivery. */
const batch = mostDropped / 2;
/** Of records that are read at once. */
const batchBytes = 8 * 1024 * 1024;
/** Notes in one step: their facts go with one trim. */
const mostNotes = 10;

/**
 * One step towards this many bytes: drops the oldest facts, whether they have crossed or not. What had not crossed
 * becomes gap records in the other zone. `isMore`: another step would drop more.
 */
export async function dropOldest(
  store: FactStore,
  stream: StreamId,
  downToBytes: number,
): Promise<{ readonly dropped: number; readonly isMore: boolean }> {
  const state = await store.state(stream);
  let excess = (state?.bytes ?? 0) - downToBytes;
  // The newest fact stays: without it the other zone would not hear of those before it.
  if (!state || excess <= 0 || state.first >= state.last) return { dropped: 0, isMore: false };
  const notes: Omit<Dropped, 'droppedAt'>[] = [];
  let reached = state.first - 1;
  while (excess > 0 && reached < state.last - 1 && notes.length < mostNotes) {
    const limit = Math.min(batch, state.last - 1 - reached);
    const maxBytes = Math.min(excess, batchBytes);
    const oldest = (await store.read(stream, { after: reached, limit, maxBytes })).filter(
      ({ offset }) => offset < state.last,
    );
    const [first] = oldest;
    const last = oldest.at(-1);
    // Another process has dropped or trimmed them meanwhile.
    if (!first || !last) break;
    notes.push({ from: first.offset, to: last.offset, chain: last.chain, epoch: state.epoch });
    reached = last.offset;
    excess -= oldest.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
  }
  const dropped = notes.length === 0 ? 0 : await store.drop(stream, ...notes);
  if (notes.length > 0 && dropped === 0 && (await store.state(stream))?.first === state.first)
    throw new Error(`${streamName(stream)}: facts up to ${reached} could not be dropped`);
  return { dropped, isMore: true };
}
