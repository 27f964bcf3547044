/** The books in the database, and those that the model makes of reads, in the same terms. */
import { hash } from 'node:crypto';
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import type { Queryable } from '../../../src/engine/database/database.ts';
import { type ModelBasket, type ModelRules, model } from './model.ts';

/** Device, tag and time as the spec writes them; the tests send no other spelling. */
const hashOf = ({ deviceId, epc, eventTimestamp }: TagRead): string =>
  hash('sha256', `${deviceId}|${epc}|${eventTimestamp}`, 'hex');

const microsOf = (timestamp: string): number =>
  Date.parse(`${timestamp.slice(0, 19)}Z`) * 1000 + Number(timestamp.slice(20, 26));

/** `places`: the name of each device's place. Default: that of the device. */
export const expectedBooks = (
  reads: readonly TagRead[],
  rules?: ModelRules,
  places: Readonly<Record<string, string>> = {},
): Record<string, ModelBasket> =>
  Object.fromEntries(
    model(
      reads.map((read) => ({
        basket: read.epc,
        place: places[read.deviceId] ?? read.deviceId,
        device: read.deviceId,
        at: microsOf(read.eventTimestamp),
        hash: hashOf(read),
      })),
      rules,
    ),
  );

const micros = (column: string): string => `(extract(epoch from ${column}) * 1000000)::bigint::text`;

/** Of these tags, or of all; each must have been read. */
export async function booksOf(on: Queryable, epcs?: readonly string[]): Promise<Record<string, ModelBasket>> {
  const filter = epcs ? 'where b.epc_hex = any ($1)' : '';
  const query = async <R>(sql: string): Promise<R[]> =>
    (await on.query(`${sql} ${filter} order by 1`, epcs ? [epcs] : [])).rows as R[];
  const baskets = await query<{ epc: string; place: string; device: string; first: string; last: string }>(
    `select b.epc_hex as epc, l.name as place, b.last_device_id as device, ${micros('b.first_seen_at')} as first,
            ${micros('b.last_seen_at')} as last
       from rfid.baskets b join iot.locations l on l.id = b.location_id`,
  );
  const movements = await query<{
    epc: string;
    from: string | null;
    to: string;
    at: string;
    device: string;
    repeats: number;
    lastAt: string | null;
    hash: string | null;
    isLast: boolean;
  }>(
    `select b.epc_hex as epc, f.name as "from", t.name as "to", ${micros('m.event_timestamp')} as at, m.device_id as device,
            m.repeats, ${micros('m.last_at')} as "lastAt", b.movement_id = m.id as "isLast",
            (select encode(p.content_hash, 'hex') from rfid.tag_read_processings p
              where p.movement_id = m.id and p.skip_reason is null) as hash
       from rfid.baskets b join rfid.movements m on m.basket_id = b.id
       left join iot.locations f on f.id = m.from_location_id join iot.locations t on t.id = m.to_location_id`,
  );
  const verdicts = await query<{ epc: string; hash: string; skip: string | null }>(
    `select b.epc_hex as epc, encode(p.content_hash, 'hex') as hash, p.skip_reason as skip
       from rfid.baskets b join rfid.tag_read_processings p on p.basket_id = b.id and p.error_message is null`,
  );
  const movementsOf = Map.groupBy(movements, ({ epc }) => epc);
  const verdictsOf = Map.groupBy(verdicts, ({ epc }) => epc);
  return Object.fromEntries(
    baskets.map(({ epc, place, device, first, last }) => {
      const own = (movementsOf.get(epc) ?? []).toSorted(
        (a, b) => Number(a.at) - Number(b.at) || ((a.hash ?? '') < (b.hash ?? '') ? -1 : 1),
      );
      const lasts = own.filter(({ isLast }) => isLast);
      if (lasts.length !== 1 || lasts[0] !== own.at(-1))
        throw new Error(`the last movement of basket ${epc} is not the one that it names`);
      const basket: ModelBasket = {
        place,
        device,
        firstSeen: Number(first),
        lastSeen: Number(last),
        movements: own.map(({ from, to, at, device: by, repeats, lastAt }) => ({
          from,
          to,
          at: Number(at),
          device: by,
          repeats,
          lastAt: lastAt === null ? null : Number(lastAt),
        })),
        verdicts: Object.fromEntries((verdictsOf.get(epc) ?? []).map(({ hash, skip }) => [hash, skip])),
      };
      return [epc, basket];
    }),
  );
}
