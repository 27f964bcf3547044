-- Counts reads of refused tags. Returns the numbers, from 1, of those that it counted, and whether no row existed. Each tag and
-- device is given once; rows are locked in the order of their keys. `p_live`: by MQTT. A tag that came live is not counted again when
-- it is replayed. Relies on refused_tags_pkey.
create or replace function rfid.refuse_tags(
  p_tenants text[], p_devices text[], p_epcs text[], p_reads bigint[], p_errors text[], p_live boolean[]
) returns table (n bigint, is_new boolean)
language sql as $$
  with given as materialized (
    select g.* from unnest(p_tenants, p_devices, p_epcs, p_reads, p_errors, p_live) with ordinality
        as g (tenant_id, device_id, epc_hex, reads, error_message, is_live, n)
  ), counted as (
    insert into rfid.refused_tags as t (tenant_id, device_id, epc_hex, reads, error_message, is_live)
    select g.tenant_id, g.device_id, g.epc_hex, g.reads, g.error_message, g.is_live
      from given g order by g.tenant_id collate "C", g.device_id, g.epc_hex
    on conflict (tenant_id, device_id, epc_hex) do update
       set reads = t.reads + excluded.reads, last_at = now(), error_message = excluded.error_message,
           is_live = t.is_live or excluded.is_live
     where excluded.is_live or not t.is_live
    returning t.tenant_id, t.device_id, t.epc_hex, t.xmax = 0 as is_new
  )
  select g.n, c.is_new from counted c join given g using (tenant_id, device_id, epc_hex)
$$;
