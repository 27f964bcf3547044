/** A consumer, to be killed. Prints the offset of each fact that it has handled. */
import { writeSync } from 'node:fs';
import { Consumer } from '../../../../src/apps/boundary/sdk/index.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';

const { url } = JSON.parse(process.argv[2] ?? '') as { url: string };
const consumer = new Consumer({
  url,
  fromZone: 'plant-a',
  toZone: 'enterprise',
  name: 'erp',
  instance: 'the only one',
  batch: 20,
  waitMs: 1000,
  logger: silentLogger,
  retry: { minMs: 10, maxMs: 100 },
  onGap: (gap) => writeSync(1, `gap ${JSON.stringify(gap)}\n`),
  handler: async ({ offset }) => {
    // Long enough to be killed in the middle of a batch.
    await new Promise((resolve) => setTimeout(resolve, 2));
    writeSync(1, `handled ${offset}\n`);
  },
});
consumer.start();
await consumer.done;
