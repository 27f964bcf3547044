import { storeTagReads } from '../../../src/apps/iot/tag-reads.ts';
import { Replay, type ReplayOptions } from '../../../src/apps/rfid/replay/replay.ts';
import { TagReadSource, type TagReadTable } from '../../../src/apps/rfid/replay/source.ts';
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import type { Queryable } from '../../../src/engine/database/database.ts';
import { type Plant, read, tag } from './support.ts';

export function replayOf(
  { tallyman, processor }: Plant,
  options: Partial<ReplayOptions> & { readonly table?: TagReadTable; readonly on?: Queryable } = {},
): Replay {
  const { table, on, ...rest } = options;
  return new Replay({
    source: new TagReadSource(on ?? tallyman.database, table),
    processor,
    checkpoints: tallyman.checkpoints,
    exclusively: (id, work, more) => tallyman.exclusively(id, work, more),
    batch: 7,
    ...rest,
  });
}

/** Rows of `iot`, as the collector writes them. */
export const collect = (on: Queryable, reads: readonly TagRead[]): Promise<string[]> =>
  storeTagReads(
    on,
    reads.map((given) => ({
      tenantId: given.tenantId,
      deviceId: given.deviceId,
      epcHex: given.epc,
      eventTimestamp: given.eventTimestamp,
      antenna: 1,
      rssi: -50,
      eventNumber: null,
    })),
  );

/** So many reads of ten tags that wander among the doors A, B and C; each is another read. */
export const wandering = (count: number, firstSecond = 0): TagRead[] =>
  Array.from({ length: count }, (_, i) =>
    read('ABC'.charAt(Math.floor(i / 10) % 3), firstSecond + i, { epc: tag(i % 10) }),
  );

/** Everything that came of the reads, but for ids and times of processing. */
export async function effects({ rows }: Plant): Promise<unknown> {
  const movements = await rows(
    `select b.epc_hex, m.from_location_id, m.to_location_id, m.event_timestamp, m.device_id
       from rfid.movements m join rfid.baskets b on b.id = m.basket_id order by 1, 4`,
  );
  const processings = await rows(
    `select encode(content_hash, 'hex') as hash, epc_hex, device_id, is_new_basket, skip_reason, error_message
       from rfid.tag_read_processings order by 1`,
  );
  const baskets = await rows('select epc_hex, location_id, last_seen_at from rfid.baskets order by 1');
  return { movements, processings, baskets };
}
