import type { Queryable } from '../../engine/database/database.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';

/** A tag that does not count, at one device. */
export interface RefusedTag {
  readonly id: string;
  readonly deviceId: string;
  readonly epcHex: string;
  /** How often it was read there. */
  readonly reads: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
  readonly errorMessage: string;
}

/** Those first read last come first. Relies on refused_tags_newest. */
export async function listRefusedTags(
  on: Queryable,
  tenantId: string,
  page: PageRequest,
): Promise<Page<RefusedTag>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<RefusedTag>(
    `select id, device_id as "deviceId", epc_hex as "epcHex", reads::float8 as reads, first_at as "firstAt",
            last_at as "lastAt", error_message as "errorMessage"
       from rfid.refused_tags where tenant_id = $1 and ($2::bigint is null or id < $2) order by id desc limit $3`,
    [tenantId, cursor, fetchLimit],
  );
  return pageOf(rows, limit);
}
