-- Appends audit events, at most one for each aggregate in one call, each to the chain of its aggregate. Two transactions that
-- append to one aggregate at once collide at its primary key: the later one is retried. Relies on the primary key of audit_events.
create or replace function passports.append_audit(p_tenant text, p_types text[], p_ids text[], p_events text[], p_data text[])
returns void
language sql as $$
  insert into passports.audit_events (tenant_id, aggregate_type, aggregate_id, seq, type, at, data, previous, hash)
  select p_tenant, e.aggregate_type, e.aggregate_id, e.seq, e.type, e.at, e.data, e.previous,
         encode(sha256(convert_to(concat_ws(E'\n', e.previous, e.aggregate_type, e.aggregate_id, e.seq, e.type, e.at, e.data), 'UTF8')), 'hex')
    from (select u.*, coalesce(l.seq, 0) + 1 as seq, coalesce(l.hash, repeat('0', 64)) as previous,
                 passports.utc(now()) as at
            from unnest(p_types, p_ids, p_events, p_data) with ordinality as u (aggregate_type, aggregate_id, type, data, n)
            left join lateral (select a.seq, a.hash from passports.audit_events a
                                where a.tenant_id = p_tenant and a.aggregate_type = u.aggregate_type and a.aggregate_id = u.aggregate_id
                                order by a.seq desc limit 1) l on true) e
   order by e.n;
$$;
