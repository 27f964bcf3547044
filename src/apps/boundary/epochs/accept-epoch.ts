/** The way back after a restore, in the zone that receives: goes on with the new epoch of the other zone. */
import { streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import type { EpochToken } from './started.ts';

export interface AcceptPlan {
  readonly formerEpoch: string;
  readonly offset: number;
  /**
   * `first`: nothing was received yet, so that the next delivery decides the epoch. There is nothing to do then, and neither if it was
   * `accepted` before.
   */
  readonly state: 'open' | 'accepted' | 'first';
}

/** Refuses an epoch that begins elsewhere than this zone stands. */
export async function planAcceptEpoch(
  store: FactStore,
  stream: StreamId,
  { epoch, after }: EpochToken,
): Promise<AcceptPlan> {
  const frontier = await store.frontier(stream);
  if (frontier?.epoch === epoch) return { formerEpoch: epoch, offset: frontier.offset, state: 'accepted' };
  const offset = frontier?.offset ?? 0;
  if (!frontier && after === 0) return { formerEpoch: epoch, offset, state: 'first' };
  if (!frontier || offset !== after)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'epoch_begins_elsewhere',
      `${streamName(stream)} was received up to offset ${offset} here, and the new epoch goes on after offset ${after}. ` +
        `In zone "${stream.from}" run: tallyman zones new-epoch ${stream.to} --after ${offset}`,
    );
  return { formerEpoch: frontier.epoch, offset, state: 'open' };
}
