-- Turns a change into tasks, in the transaction that makes the change.
--
-- One task for each label, in lane `label:{MAC}`, in the order given; each page stores the task it waits for.
-- The caller has locked the labels in the order of their MACs. enqueue_many locks the lanes in the same order before it
-- draws an id. So within a label the order of tasks is the order of commits.
-- tasks: [{label, mac, latest, resync, pages: [1, ...], payload}]
create or replace function labels.enqueue_tasks(p_tenant text, p_tasks json, p_correlation text) returns bigint[]
language plpgsql as $$
declare
  v_ids bigint[];
begin
  select array_agg(e.id order by e.n) into v_ids
    from tallyman.enqueue_many(
      (select json_agg(json_build_object(
                'kind', 'labels.push', 'payload', t.task -> 'payload', 'lane', 'label:' || (t.task ->> 'mac'),
                'latest_only', t.task -> 'latest') order by t.n)
         from json_array_elements(p_tasks) with ordinality as t (task, n)),
      tenant_id => p_tenant, correlation_id => p_correlation) e;
  -- In the same order as every other statement that locks several pages.
  perform 1 from labels.pages g
    where g.label_id in (select (t.task ->> 'label')::bigint from json_array_elements(p_tasks) t (task))
    order by g.label_id, g.page for no key update;
  update labels.pages g
     set wanted_job = w.job, wanted_at = clock_timestamp(), state = 'waiting', error = null, ask_at = null,
         resync_job = case when w.resync then w.job else g.resync_job end
    from (select (t.task ->> 'label')::bigint as label_id, p.page::smallint as page, v_ids[t.n] as job,
                 (t.task ->> 'resync')::boolean as resync
            from json_array_elements(p_tasks) with ordinality as t (task, n),
                 json_array_elements_text(t.task -> 'pages') as p (page)) w
   where g.label_id = w.label_id and g.page = w.page;
  return v_ids;
end $$;
