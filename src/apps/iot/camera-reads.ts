import type { Queryable } from '../../engine/database/database.ts';

/** An outbound license plate that a camera at a door has seen. */
export interface CameraRead {
  readonly tenantId: string;
  readonly deviceId: string;
  readonly oblpn: string;
  /** UTC with microseconds, as `formatInstant` writes it. */
  readonly eventTimestamp: string;
}

/** Appends camera reads in one statement; returns their ids, in order. */
export async function storeCameraReads(on: Queryable, reads: readonly CameraRead[]): Promise<string[]> {
  if (reads.length === 0) return [];
  const { rows } = await on.query<{ id: string }>(
    `insert into iot.camera_reads (tenant_id, device_id, oblpn, event_timestamp)
     select r.tenant_id, r.device_id, r.oblpn, r.event_timestamp
       from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[])
            with ordinality as r (tenant_id, device_id, oblpn, event_timestamp, n)
      order by r.n
     returning id`,
    [
      reads.map((read) => read.tenantId),
      reads.map((read) => read.deviceId),
      reads.map((read) => read.oblpn),
      reads.map((read) => read.eventTimestamp),
    ],
  );
  return rows.map(({ id }) => id);
}
