/** The limit of the disk: what gathered is written, and flushed. */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { FactInput } from '../../../../src/apps/boundary/domain/fact.ts';
import { Batcher } from '../../../../src/engine/batching/batcher.ts';
import { temporaryFolder } from '../../../lib/processes.ts';
import { textOf } from '../facts.ts';
import type { System } from './system.ts';

export const file: System = async () => {
  const { path, remove } = await temporaryFolder('tallyman-bench-file-');
  const handle = await open(join(path, 'facts'), 'a');
  let count = 0;
  const batcher = new Batcher<FactInput, number>({
    maxBatch: 1000,
    maxInFlight: 1,
    async send(facts) {
      await handle.write(`${facts.map(textOf).join('\n')}\n`);
      await handle.datasync();
      count += facts.length;
      return facts.map((_, i) => count - facts.length + 1 + i);
    },
  });
  return {
    append: (fact) => batcher.add(fact),
    count: async () => count,
    async stop() {
      await handle.close();
      remove();
    },
  };
};
