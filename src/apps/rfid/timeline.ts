import type { Moment, Subject, SubjectPage, TenantQueries } from '../../host/timeline.ts';

/** Movements of `basket:EPC`, and the history of `shipment:NUMBER`. */
export async function momentsOf(
  on: TenantQueries,
  { type, id }: Subject,
  page: SubjectPage,
): Promise<readonly Moment[]> {
  if (type === 'basket') return movements(on, id, page);
  if (type === 'shipment') return shipment(on, id, page);
  return [];
}

/** Relies on baskets_by_epc and movements_once. */
async function movements(on: TenantQueries, epc: string, { limit, before }: SubjectPage): Promise<Moment[]> {
  const { rows } = await on.query<{ id: string; at: Date; from: string | null; to: string; device: string }>(
    `select m.id, m.event_timestamp as at, f.name as "from", t.name as "to", m.device_id as device
       from rfid.baskets b join rfid.movements m on m.tenant_id = b.tenant_id and m.basket_id = b.id
       left join iot.locations f on f.id = m.from_location_id
       left join iot.locations t on t.id = m.to_location_id
      where b.tenant_id = $1 and b.epc_hex = upper($2) and ($3::timestamptz is null or m.event_timestamp < $3)
      order by m.event_timestamp desc, m.id desc limit $4`,
    [on.tenantId, epc, before?.at ?? null, limit],
  );
  return rows.map(({ id, at, from, to, device }) => ({
    id,
    type: 'rfid.movement',
    at,
    text:
      from === null ? `first seen at ${to} by ${device}` : `moved from ${from} to ${to}, seen by ${device}`,
    details: { from, to, device },
  }));
}

async function shipment(
  on: TenantQueries,
  number: string,
  { limit, before }: SubjectPage,
): Promise<Moment[]> {
  const { rows } = await on.query<{ id: string; what: string; at: Date; text: string; oblpn: string | null }>(
    `with shipment as (select * from rfid.shipments s where s.tenant_id = $1 and s.number = $2)
     select * from (
       select s.id || ':planned' as id, 'planned' as what, s.created_at as at, 'planned' as text, null as oblpn from shipment s
       union all select s.id || ':loading', 'loading', s.loading_at, 'loading began', null from shipment s
       union all select s.id || ':shipped', 'shipped', s.shipped_at, 'shipped', null from shipment s
       union all select l.id || ':loaded', 'loaded', l.loaded_at, 'plate ' || l.oblpn || ' loaded', l.oblpn
                   from shipment s join rfid.shipment_lines l on l.shipment_id = s.id
       union all select l.id || ':returned', 'returned', l.closed_at, 'basket of plate ' || l.oblpn || ' came back', l.oblpn
                   from shipment s join rfid.shipment_lines l on l.shipment_id = s.id) m
      where m.at is not null and ($3::timestamptz is null or m.at < $3)
      order by m.at desc, m.id desc limit $4`,
    [on.tenantId, number, before?.at ?? null, limit],
  );
  return rows.map(({ id, what, at, text, oblpn }) => ({
    id,
    type: `rfid.shipment.${what}`,
    at,
    text,
    details: oblpn === null ? {} : { oblpn },
  }));
}

/** Baskets whose tag begins with this text, and shipments whose number does. */
export async function basketsLike(on: TenantQueries, text: string): Promise<readonly Subject[]> {
  const { rows } = await on.query<{ type: string; id: string }>(
    `(select 'basket' as type, b.epc_hex as id from rfid.baskets b
       where b.tenant_id = $1 and b.epc_hex ^@ upper($2) order by b.epc_hex limit 10)
     union all
     (select 'shipment', s.number from rfid.shipments s where s.tenant_id = $1 and s.number ^@ $2 order by s.number limit 10)`,
    [on.tenantId, text],
  );
  return rows.map(({ type, id }) => ({ type, id, title: `${type} ${id}` }));
}
