-- Baskets that were read at a return door: marked, and their lines closed. The caller has them locked. A return that is
-- told late closes only what was loaded before it.
create or replace function rfid.return_baskets(p_baskets bigint[], p_at timestamptz[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
begin
  update rfid.baskets b set returned_at = r.at
    from (select u.basket_id, max(u.at) as at from unnest(p_baskets, p_at) as u (basket_id, at) group by 1) r
   where b.id = r.basket_id
     and (b.returned_at is null or b.returned_at < r.at)
     and not exists (select 1 from rfid.shipment_lines l
                      where l.basket_id = b.id and l.closed_at is null and l.loaded_at > r.at);
  -- The first return after the loading is the one that ends it.
  update rfid.shipment_lines l set closed_at = r.at
    from (select o.id, min(u.at) as at
            from unnest(p_baskets, p_at) as u (basket_id, at)
            join rfid.shipment_lines o on o.basket_id = u.basket_id and o.closed_at is null and o.loaded_at <= u.at
           group by 1) r
   where l.id = r.id;
end $$;
