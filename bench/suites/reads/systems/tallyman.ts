import { TagReadProcessor } from '../../../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../../../src/apps/rfid/reference/cached-devices.ts';
import { readsOf } from '../stream.ts';
import type { System } from './system.ts';

const CALLERS = 8;
const BATCH = 500;

export const tallyman: System = {
  connections: CALLERS,
  async run(database, size, halfway) {
    const processor = new TagReadProcessor({ database, devices: new CachedDevices({ database }) });
    let next = 0;
    const caller = async () => {
      while (next < size.reads) {
        const from = next;
        next = Math.min(from + BATCH, size.reads);
        if (from < size.reads / 2 && next >= size.reads / 2) halfway();
        await processor.processTagReads(readsOf(size, from, next));
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, caller));
  },
};
