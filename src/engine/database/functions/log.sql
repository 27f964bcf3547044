-- The log: append-only streams.
--
-- The stream's row is locked before an offset is taken and stays locked until the commit, so the next offset goes to
-- the next transaction: no gaps (a rollback gives its offsets back), and once n is visible nothing can appear below n.

create or replace function tallyman.log_stream(p_name text) returns tallyman.log_streams
language plpgsql as $$
declare
  v_stream tallyman.log_streams;
begin
  loop
    select s.* into v_stream from tallyman.log_streams s where s.name = p_name for update;
    exit when found;
    insert into tallyman.log_streams (name) values (p_name) on conflict do nothing;
  end loop;
  return v_stream;
end $$;

-- Appends the entries whose keys are new, in the order of the input, from offset `first` on without a gap. The keys of
-- one call are distinct. Those that were taken come back as [[n, offset, digest], ...], n counting the input from 1.
-- With p_strict a key that is taken by other content is an error, and nothing is appended.
--
-- Keys are nearly always new, and to insert them finds out for a third less than to look each one up before. Where one
-- is taken after all, the insert is undone and every key looked up; p_careful (there were some a moment ago) starts so.
--
-- p_payloads holds one JSON text a line: JSON as JSON.stringify writes it has no line break in it.
--
-- Relies on log_entries_key. `stream + 0` keeps the planner from walking a whole stream by its primary key instead,
-- which looks as cheap while the table is empty, and a plan is kept for as long as its session.
create or replace function tallyman.log_append(
  p_stream text, p_keys text[], p_digests text[], p_payloads text, p_strict boolean, p_careful boolean,
  out first bigint, out taken json
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  -- Before the lock: what can be done beside another's turn is not done in ours.
  v_payloads json[] := string_to_array(p_payloads, E'\n')::json[];
  v_stream tallyman.log_streams := tallyman.log_stream(p_stream);
  v_added bigint := cardinality(p_keys);
  v_conflict text;
begin
  -- Only now, under the lock, do statements take their snapshots: they see every key there is.
  first := v_stream.next_offset;
  if p_careful or v_stream.first_offset > 1 and exists (
       select 1 from tallyman.log_keys k where k.stream = v_stream.id and k.key = any (p_keys)) then
    v_added := null;
  else
    begin
      insert into tallyman.log_entries (stream, "offset", key, digest, payload)
      select v_stream.id, v_stream.next_offset - 1 + i.n, i.key, i.digest, i.payload
        from unnest(p_keys, p_digests, v_payloads) with ordinality as i (key, digest, payload, n);
    exception when unique_violation then
      v_added := null;
    end;
  end if;

  if v_added is null then
    with judged as materialized (
      select i.n, i.key, i.digest, i.payload,
             coalesce(e."offset", k."offset") as known, coalesce(e.digest, k.digest) as had
        from unnest(p_keys, p_digests, v_payloads) with ordinality as i (key, digest, payload, n)
        left join tallyman.log_entries e on e.key = i.key and e.stream + 0 = v_stream.id
        left join tallyman.log_keys k on v_stream.first_offset > 1 and k.stream = v_stream.id and k.key = i.key
    ), added as (
      insert into tallyman.log_entries (stream, "offset", key, digest, payload)
      select v_stream.id, v_stream.next_offset - 1 + row_number() over (order by j.n), j.key, j.digest, j.payload
        from judged j where j.known is null
      returning 1
    )
    select json_agg(json_build_array(j.n, j.known, j.had) order by j.n) filter (where j.known is not null),
           min(j.key) filter (where j.had <> j.digest), (select count(*) from added)
      into taken, v_conflict, v_added
      from judged j;
    if p_strict and v_conflict is not null then
      raise exception 'key "%" of stream "%" was appended before with other content', v_conflict, p_stream
        using errcode = 'TM010';
    end if;
  end if;
  -- Not inside the block above: a row that a transaction has locked and its subtransaction changes costs a multixact.
  update tallyman.log_streams s set next_offset = s.next_offset + v_added where s.id = v_stream.id and v_added > 0;
end $$;

-- Drops up to p_limit entries from the start of a stream, up to and including offset p_up_to, and keeps their keys.
-- Returns how many. The stream is locked: trims take turns, and log_append, which asks log_keys only where first_offset
-- says that it holds something, never sees the one without the other. Relies on log_entries_pkey.
create or replace function tallyman.log_trim(p_stream text, p_up_to bigint, p_limit integer) returns integer
language plpgsql
set enable_seqscan = off
as $$
declare
  v_stream tallyman.log_streams;
  v_end bigint;
begin
  select s.* into v_stream from tallyman.log_streams s where s.name = p_stream for update;
  v_end := least(p_up_to + 1, v_stream.next_offset, v_stream.first_offset + p_limit);
  if v_end is null or v_end <= v_stream.first_offset then
    return 0;
  end if;
  with gone as (
    delete from tallyman.log_entries e
     where e.stream = v_stream.id and e."offset" >= v_stream.first_offset and e."offset" < v_end
    returning e.stream, e.key, e."offset", e.digest
  )
  insert into tallyman.log_keys (stream, key, "offset", digest)
  select g.stream, g.key, g."offset", g.digest from gone g;
  update tallyman.log_streams s set first_offset = v_end where s.id = v_stream.id;
  return v_end - v_stream.first_offset;
end $$;
