-- Marks baskets that were read at a return door and closes their lines. The caller has locked the baskets. A return that
-- arrives late closes only lines that were loaded before it.
create or replace function rfid.return_baskets(p_baskets bigint[], p_at timestamptz[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_tenants text[];
  v_epcs text[];
  v_at timestamptz[];
  v_shipments bigint[];
begin
  with marked as (
    update rfid.baskets b set returned_at = r.at
      from (select u.basket_id, max(u.at) as at, o.returned_at as before
              from unnest(p_baskets, p_at) as u (basket_id, at) join rfid.baskets o on o.id = u.basket_id group by 1, 3) r
     where b.id = r.basket_id
       and (b.returned_at is null or b.returned_at < r.at)
       and not exists (select 1 from rfid.shipment_lines l
                        where l.basket_id = b.id and l.closed_at is null and l.loaded_at > r.at)
    returning b.tenant_id, b.epc_hex, r.at, r.before, b.moved_at
  )
  select array_agg(m.tenant_id), array_agg(m.epc_hex), array_agg(m.at) into v_tenants, v_epcs, v_at
    from marked m
   -- A basket that stays at the door is read many times but returned once.
   where m.before is null or m.moved_at > m.before;
  -- The first return after the loading closes the line.
  with closed as (
    update rfid.shipment_lines l set closed_at = r.at
      from (select o.id, min(u.at) as at
              from unnest(p_baskets, p_at) as u (basket_id, at)
              join rfid.shipment_lines o on o.basket_id = u.basket_id and o.closed_at is null and o.loaded_at <= u.at
             group by 1) r
     where l.id = r.id
    returning l.shipment_id
  )
  select array_agg(distinct c.shipment_id) into v_shipments from closed c;

  if v_epcs is not null then
    perform tallyman_events.emit_many(
        array_agg('rfid.basket.returned'::text), array_agg('basket'::text), v_epcs,
        array_agg(json_build_object('epc_hex', e.epc_hex) order by e.n), v_tenants, occurred_at => v_at)
      from unnest(v_epcs) with ordinality as e (epc_hex, n);
  end if;
  if v_shipments is not null then
    perform rfid.tell_closed(v_shipments);
  end if;
end $$;
