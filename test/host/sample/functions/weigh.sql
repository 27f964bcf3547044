-- The weight of a parcel, and the event that tells of it, in one transaction.
create or replace function parcels.weigh(p_tenant text, p_code text, p_grams integer) returns void
language plpgsql as $$
begin
  insert into parcels.parcels as p (tenant_id, code, weighed_at, grams) values (p_tenant, p_code, now(), p_grams)
  on conflict (tenant_id, code) do update set weighed_at = now(), grams = p_grams;
  perform tallyman_events.emit('parcel.weighed', 'parcel', p_code, json_build_object('code', p_code, 'grams', p_grams),
                               tenant_id => p_tenant);
end $$;
