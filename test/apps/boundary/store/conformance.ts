import { afterAll, beforeAll } from 'vitest';
import { describeAppends } from './conformance-appends.ts';
import { describeConsumers } from './conformance-consumers.ts';
import { describeCrossings } from './conformance-crossings.ts';
import { describeDeliveries } from './conformance-deliveries.ts';
import type { Opened } from './scene.ts';

/** The conformance suite of the storage (BND-15): one storage for all of it. */
export function describeStore(name: string, open: () => Promise<Opened>): void {
  let opened: Opened | undefined;
  beforeAll(async () => {
    opened = await open();
  });
  afterAll(() => opened?.stop());
  const now = (): Opened => {
    if (!opened) throw new Error('the storage is not open yet');
    return opened;
  };
  describeAppends(name, now);
  describeConsumers(name, now);
  describeDeliveries(name, now);
  describeCrossings(name, now);
}
