-- Writes events about baskets and shipments, in the transaction that makes the change. Callers hold the locks of the baskets
-- or of the shipment, so the events of each are in the order in which they happened.

-- One event for each movement, and before it one for a basket that is new. A late movement is told by its caller, as a correction.
create or replace function rfid.tell_new_movements(m rfid.new_movements, p_ids bigint[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
begin
  -- Relies on the nested loop for the order of the movements: sorting each array would cost more than the rest.
  perform tallyman_events.emit_many(
      array_agg(e.event_type), array_agg('basket'::text), array_agg(n.epc_hex), array_agg(e.payload),
      array_agg(n.tenant_id), occurred_at => array_agg(n.at))
    from (select unnest(m.tenants) as tenant_id, unnest(p_ids) as id, unnest(m.from_locations) as from_id,
                 unnest(m.to_locations) as to_id, unnest(m.at) as at, unnest(m.devices) as device_id,
                 unnest(m.epcs) as epc_hex, unnest(m.kinds) as kind) n,
         lateral (
           select 'rfid.basket.created' as event_type,
                  json_build_object('epc_hex', n.epc_hex, 'location_id', n.to_id::text,
                                    'device_id', n.device_id) as payload
            where n.kind = 'new'
           union all
           select 'rfid.movement',
                  json_build_object('movement_id', n.id::text, 'epc_hex', n.epc_hex, 'from_location_id', n.from_id::text,
                                    'to_location_id', n.to_id::text, 'device_id', n.device_id)
            where n.kind is distinct from 'late') e;
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
