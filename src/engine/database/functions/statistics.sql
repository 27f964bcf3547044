-- Tables that have outgrown their statistics.

-- PostgreSQL keeps the plans of functions in each session and makes them for the sizes of that moment. A queue is empty most of
-- the time; a plan made then compares every lane with every job once a burst has filled the tables. Autovacuum finds out
-- within a minute. ANALYZE makes all sessions plan again.
--
-- Lists tables that the caller may analyze and that have many more rows than they had when they were last looked at.
create or replace function tallyman.outgrown_tables() returns text[]
language sql stable as $$
  select coalesce(array_agg(c.oid::regclass::text order by c.oid), '{}')
    from pg_class c
   where c.oid = any (array['tallyman.jobs', 'tallyman.lanes', 'tallyman.lane_gates', 'tallyman.dedupe_keys']::regclass[])
     and pg_has_role(c.relowner, 'USAGE')
     and pg_stat_get_live_tuples(c.oid) > 2 * greatest(c.reltuples, 0) + 2000
$$;
