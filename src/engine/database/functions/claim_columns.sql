-- The columns in which jobs are handed to a worker, by claim and by fetch_lane.

-- The columns of a job that differ from the usual values, for a claim to hand over beside position, kind, payload and
-- time; null if none does. `scheduled` is in seconds since 1970. A payload over 8 KiB is `large`: to be fetched when the job
-- starts, so that a claim is bounded in bytes.
--
-- One expression without a subquery, so that it is made part of the query that calls it; the same holds for the next.
create or replace function tallyman.unusual(j tallyman.jobs, p_superseded boolean) returns json
language sql stable as $$
  select case when j.id <> j.pos or j.tenant_id <> 'default' or j.attempts > 0 or j.max_attempts <> 5
           or j.correlation_id is not null or j.scheduled_at <> j.created_at or j.trace is not null
           or j.latest_only or j.dedupe_key is not null or octet_length(j.payload::text) > 8192
      then json_strip_nulls(json_build_object(
        'id', nullif(j.id, j.pos)::text, 'tenant', nullif(j.tenant_id, 'default'), 'attempts', nullif(j.attempts, 0),
        'maxAttempts', nullif(j.max_attempts, 5), 'correlation', j.correlation_id,
        'scheduled', date_part('epoch', nullif(j.scheduled_at, j.created_at)), 'trace', j.trace,
        'early', nullif(j.scheduled_at > now(), false), 'superseded', nullif(p_superseded, false),
        'keyed', nullif(j.dedupe_key is not null, false),
        'large', nullif(octet_length(j.payload::text) > 8192, false)))
    end
$$;

create or replace function tallyman.small_payload(j tallyman.jobs) returns text
language sql stable as $$
  select case when octet_length(j.payload::text) <= 8192 then j.payload::text else 'null' end
$$;
