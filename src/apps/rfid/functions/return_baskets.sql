-- Marks baskets that were read at a return door and closes their lines. The caller has locked the baskets. `p_begins`: the read is the
-- first of a stay at the door; a basket that stays is read many times but returned once. A return closes only lines that were
-- loaded before it; of several, the first after the loading closes the line, also when it arrives after another.
create or replace function rfid.return_baskets(p_baskets bigint[], p_at timestamptz[], p_begins boolean[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_tenants text[];
  v_epcs text[];
  v_at timestamptz[];
  v_shipments bigint[];
begin
  -- Before the baskets are marked: one that is not marked as returned is returned by its first read here.
  select array_agg(r.tenant_id), array_agg(r.epc_hex), array_agg(r.at) into v_tenants, v_epcs, v_at
    from (select b.tenant_id, b.epc_hex, u.at
            from unnest(p_baskets, p_at, p_begins) with ordinality as u (basket_id, at, begins, n)
            join rfid.baskets b on b.id = u.basket_id
           where (u.begins or (b.returned_at is null
                               and not exists (select 1 from unnest(p_baskets, p_begins) as o (basket_id, begins)
                                                where o.basket_id = u.basket_id and o.begins)
                               and u.at = (select min(o.at) from unnest(p_baskets, p_at) as o (basket_id, at)
                                            where o.basket_id = u.basket_id)))
             and not exists (select 1 from rfid.shipment_lines l
                              where l.basket_id = b.id and l.closed_at is null and l.loaded_at > u.at)
           order by u.n) r;
  update rfid.baskets b set returned_at = r.at
    from (select u.basket_id, max(u.at) as at from unnest(p_baskets, p_at) as u (basket_id, at) group by 1) r
   where b.id = r.basket_id
     and (b.returned_at is null or b.returned_at < r.at)
     and not exists (select 1 from rfid.shipment_lines l
                      where l.basket_id = b.id and l.closed_at is null and l.loaded_at > r.at);
  with closed as (
    update rfid.shipment_lines l set closed_at = r.at
      from (select o.id, min(u.at) as at
              from unnest(p_baskets, p_at) as u (basket_id, at)
              join rfid.shipment_lines o on o.basket_id = u.basket_id and o.loaded_at <= u.at
                                        and (o.closed_at is null or o.closed_at > u.at)
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
