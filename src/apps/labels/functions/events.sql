-- Emits `label.shown` or `label.failed` for these pages, by their current state. The caller has changed them in this
-- transaction, and so holds their locks.
create or replace function labels.tell(p_labels bigint[], p_pages smallint[]) returns void
language plpgsql as $$
begin
  perform tallyman_events.emit_many(
      array_agg(case g.state when 'shown' then 'label.shown' else 'label.failed' end order by u.n),
      array_agg('label'::text), array_agg(l.mac order by u.n),
      array_agg(case g.state
        when 'shown' then json_build_object('mac', l.mac, 'store', s.code, 'page', g.page, 'hash', g.shown_hash)
        else json_build_object('mac', l.mac, 'store', s.code, 'page', g.page, 'error', coalesce(g.error, g.state)) end
        order by u.n),
      array_agg(l.tenant_id order by u.n))
    from unnest(p_labels, p_pages) with ordinality as u (label_id, page, n)
    join labels.pages g on g.label_id = u.label_id and g.page = u.page
    join labels.labels l on l.id = g.label_id
    join labels.stores s on s.id = l.store_id
   where g.state in ('shown', 'failed', 'timeout')
  having count(*) > 0;
end $$;
