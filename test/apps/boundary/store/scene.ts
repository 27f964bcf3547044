import { randomUUID } from 'node:crypto';
import type { Delivery } from '../../../../src/apps/boundary/domain/delivery.ts';
import type { FactStore, StoredEntry, StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { firstChain } from '../../../../src/engine/log/entry.ts';
import { fact, numbers } from './facts.ts';

/*
 * What every adapter of the storage must do (BND-15). A test has a tenant of its own, so that all of them share one storage.
 */

export interface Opened {
  readonly store: FactStore;
  /** The same storage, as another process of the node has it. */
  readonly other: FactStore;
  stop(): Promise<void>;
}

export function sceneOn(opened: () => Opened) {
  const streams = () => {
    const tenantId = `t-${randomUUID()}`;
    const of = (buffer: 'store' | 'forward', to = 'enterprise'): StreamId => ({
      tenantId,
      buffer,
      from: 'plant-a',
      to,
    });
    return { tenantId, out: of('store'), into: of('forward'), of };
  };
  const fill = async (stream: StreamId, count: number, prefix = 'm'): Promise<void> => {
    await Promise.all(numbers(1, count).map((n) => opened().store.append(stream, fact(`${prefix}${n}`))));
  };
  const all = (stream: StreamId, after = 0): Promise<StoredEntry[]> =>
    opened().store.read(stream, { after, limit: 1000, maxBytes: 1024 * 1024 });
  const messageIds = (entries: readonly StoredEntry[]) =>
    entries.map(({ record: each }) => ('messageId' in each ? each.messageId : `gap ${each.gap.reason}`));
  /** What a peer would send after an offset. */
  const deliveryOf = async (stream: StreamId, after: number, count = 1000): Promise<Delivery> => {
    const state = await opened().store.state(stream);
    const before = after === 0 ? undefined : (await all(stream, after - 1))[0];
    return {
      epoch: state?.epoch ?? '',
      chainBefore: before?.chain ?? firstChain(state?.epoch ?? ''),
      entries: (await all(stream, after)).slice(0, count),
    };
  };
  return { streams, fill, all, messageIds, deliveryOf };
}
