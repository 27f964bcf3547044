import { TagReadProcessor } from '../../../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../../../src/apps/rfid/reference/cached-devices.ts';
import type { Database } from '../../../../src/engine/database/database.ts';
import { EventFollower } from '../../../../src/events/follower.ts';
import { readsOf } from '../stream.ts';
import type { System } from './system.ts';

const CALLERS = 8;
const BATCH = 500;

export const tallyman: System = {
  connections: CALLERS,
  async prepare(database, { listened }) {
    if (listened) await database.query(`select tallyman_events.listen($1)`, [LISTENER]);
  },
  async run(database, size, halfway) {
    const follower = size.listened ? followerOf(database) : undefined;
    follower?.start();
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
    await follower?.stop();
  },
};

const LISTENER = 'bench';

/** Reads each movement's event once, as whoever follows them does. */
const followerOf = (database: Database): EventFollower =>
  new EventFollower({
    database,
    listener: LISTENER,
    handle: async (tx, { after, upTo }) => {
      await tx.query(
        `select id, payload from tallyman_events.events where id > $1 and id <= $2 and event_type = 'rfid.movement'`,
        [after, upTo],
      );
    },
  });
