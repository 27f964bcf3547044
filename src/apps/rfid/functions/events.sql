-- Writes events about baskets and shipments, in the transaction that makes the change. Callers hold the locks of the baskets
-- or of the shipment, so the events of each are in the order in which they happened.

-- One event for each movement, and before it one for a basket that is new: its first movement comes from nowhere.
create or replace function rfid.tell_movements(
  p_tenants text[], p_ids bigint[], p_from bigint[], p_to bigint[], p_at timestamptz[], p_devices text[], p_epcs text[]
) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
begin
  -- Relies on the nested loop for the order of the movements: sorting each array would cost more than the rest.
  perform tallyman_events.emit_many(
      array_agg(e.event_type), array_agg('basket'::text), array_agg(m.epc_hex), array_agg(e.payload),
      array_agg(m.tenant_id), occurred_at => array_agg(m.at))
    from unnest(p_tenants, p_ids, p_from, p_to, p_at, p_devices, p_epcs)
           as m (tenant_id, id, from_id, to_id, at, device_id, epc_hex),
         lateral (
           select 'rfid.basket.created' as event_type,
                  json_build_object('epc_hex', m.epc_hex, 'location_id', m.to_id::text,
                                    'device_id', m.device_id) as payload
            where m.from_id is null
           union all
           select 'rfid.movement',
                  json_build_object('movement_id', m.id::text, 'epc_hex', m.epc_hex, 'from_location_id', m.from_id::text,
                                    'to_location_id', m.to_id::text, 'device_id', m.device_id)) e;
end $$;

-- `planned`, `loading` or `shipped`, of these shipments.
create or replace function rfid.tell_shipments(p_step text, p_shipments bigint[], p_at timestamptz) returns void
language plpgsql as $$
begin
  perform tallyman_events.emit_many(
      array_agg('rfid.shipment.' || p_step), array_agg('shipment'::text), array_agg(s.number order by s.id),
      array_agg(json_build_object('number', s.number) order by s.id), array_agg(s.tenant_id order by s.id),
      occurred_at => array_agg(p_at))
    from rfid.shipments s where s.id = any (p_shipments) having count(*) > 0;
end $$;

-- Writes `closed`, once, for each of these shipments that has left and whose baskets are all back.
--
-- Two transactions may bring back the last two baskets of a shipment at the same time, and neither sees the other's. So each
-- takes a lock of the shipment until its commit, then checks. This lock is always taken last, in the order of keys: the
-- shipment's own row is locked before the baskets, and the caller already holds the baskets.
create or replace function rfid.tell_closed(p_shipments bigint[]) returns void
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(k.key)
     from (select distinct hashtextextended('rfid.shipment.closed:' || i, 0) as key from unnest(p_shipments) i
            order by 1) k;
  perform tallyman_events.emit_many(
      array_agg('rfid.shipment.closed'::text), array_agg('shipment'::text), array_agg(s.number order by s.id),
      array_agg(json_build_object('number', s.number) order by s.id), array_agg(s.tenant_id order by s.id),
      event_keys => array_agg('shipment-closed:' || s.id order by s.id))
    from rfid.shipments s
   where s.id = any (p_shipments) and s.status = 'SHIPPED'
     and exists (select 1 from rfid.shipment_lines l where l.shipment_id = s.id)
     and not exists (select 1 from rfid.shipment_lines l where l.shipment_id = s.id and l.closed_at is null)
  having count(*) > 0;
end $$;
