-- What keeps the tables small.

-- History partitions, one a day, made ahead of time. A day for which rows already lie in the default partition
-- (no process made it in time) stays there; purge_history clears it row by row.
create or replace function tallyman.ensure_history(p_days_ahead integer default 7) returns integer
language plpgsql as $$
declare
  v_day date;
  v_made integer := 0;
begin
  perform pg_advisory_xact_lock(hashtext('tallyman.history'));
  for v_day in select d::date from generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + p_days_ahead, '1 day') d loop
    continue when to_regclass(format('tallyman.history_%s', to_char(v_day, 'YYYYMMDD'))) is not null;
    begin
      execute format('create table tallyman.history_%s partition of tallyman.history for values from (%L) to (%L)',
        to_char(v_day, 'YYYYMMDD'), v_day::timestamp at time zone 'UTC', (v_day + 1)::timestamp at time zone 'UTC');
      v_made := v_made + 1;
    exception when check_violation then
      null;
    end;
  end loop;
  return v_made;
end $$;

-- Drops the days that ended more than p_keep ago. Returns the partitions that were dropped.
create or replace function tallyman.purge_history(p_keep interval) returns text[]
language plpgsql as $$
declare
  v_name text;
  v_dropped text[] := '{}';
begin
  perform pg_advisory_xact_lock(hashtext('tallyman.history'));
  for v_name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'tallyman.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
       and (to_date(substr(c.relname, 9), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC' <= now() - p_keep
  loop
    execute format('drop table tallyman.%I', v_name);
    v_dropped := v_dropped || v_name;
  end loop;
  delete from tallyman.history_default h where h.finished_at <= now() - p_keep;
  return v_dropped;
end $$;

-- Keys whose time is past, lanes that have been at rest for long with nothing in them, and crashes of long ago.
create or replace function tallyman.purge_leftovers(p_lane_rest interval, p_limit integer, out keys integer, out lanes integer)
language plpgsql as $$
begin
  with gone as (
    select k.tenant_id, k.kind, k.key from tallyman.dedupe_keys k
     where k.expires_at <= now() order by k.expires_at limit p_limit for update skip locked
  )
  delete from tallyman.dedupe_keys k using gone g
   where k.tenant_id = g.tenant_id and k.kind = g.kind and k.key = g.key;
  get diagnostics keys = row_count;
  with idle as (
    select l.id from tallyman.lanes l
     where l.pos is null and l.due_at is null and l.blocked_at is null and l.rested_at <= now() - p_lane_rest
       and not exists (select 1 from tallyman.jobs j where j.lane = l.id)
     limit p_limit for update skip locked
  ), gate as (
    -- A writer that has the gate is about to wake the lane.
    select g.lane from tallyman.lane_gates g where g.lane in (select i.id from idle i) for update skip locked
  ), unlocked as (
    delete from tallyman.lane_gates g using gate i where g.lane = i.lane
  )
  delete from tallyman.lanes l using gate i where l.id = i.lane;
  get diagnostics lanes = row_count;
  delete from tallyman.crashes c where c.at < now() - interval '7 days';
end $$;

-- Rows that are written before the first partition is made would keep their day in the default partition.
select tallyman.ensure_history(14);
