-- The log: append-only streams.
--
-- The stream's row is locked before an offset is taken and stays locked until the commit, so the next offset goes to
-- the next transaction: no gaps (a rollback gives its offsets back), and once n is visible nothing can appear below n.
--
-- Each entry has a chain hash over the one before:
--
--   chain(0) = sha256(epoch)      chain(n) = sha256(chain(n - 1), n as 8 bytes, digest, sha256(payload), key)
--
-- Two streams with one chain hash at n hold the same entries up to n.

-- Finds a stream by name, and makes it if it is missing. Returns it locked.
create or replace function tallyman.log_stream(p_tenant text, p_name text, p_key_space text, p_epoch uuid)
returns tallyman.log_streams
language plpgsql as $$
declare
  v_stream tallyman.log_streams;
  v_epoch uuid;
begin
  loop
    select s.* into v_stream from tallyman.log_streams s
     where s.tenant_id = p_tenant and s.name = p_name for no key update;
    exit when found;
    v_epoch := coalesce(p_epoch, gen_random_uuid());
    insert into tallyman.log_streams (tenant_id, name, key_space, epoch, chain)
    values (p_tenant, p_name, p_key_space, v_epoch, sha256(uuid_send(v_epoch)))
    on conflict do nothing;
  end loop;
  if v_stream.deleted_at is not null then
    raise exception 'stream "%" is being deleted', p_name using errcode = 'TM020';
  elsif v_stream.key_space <> p_key_space then
    raise exception 'stream "%" has the key space "%", not "%"', p_name, v_stream.key_space, p_key_space
      using errcode = 'TM021';
  elsif v_stream.epoch <> p_epoch then
    raise exception 'stream "%" is in epoch %, not %', p_name, v_stream.epoch, p_epoch using errcode = 'TM022';
  end if;
  return v_stream;
end $$;

-- Appends the entries whose keys are new, in the order of the input, from offset `first` on without a gap. The keys of
-- one call are distinct. Those that were taken come back as [[n, stream, offset, digest], ...], n counting the input
-- from 1. With p_strict a key that is taken by other content is an error, and nothing is appended.
--
-- Keys are nearly always new, and to insert them finds out for a third less than to look each one up before. Where one
-- is taken after all, the insert is undone and every key looked up; p_careful (there were some a moment ago) starts so.
--
-- p_hashes holds 64 bytes for each entry, one after another, in hex: its digest, and the hash of its payload. p_payloads
-- holds one JSON text a line: JSON as JSON.stringify writes it has no line break in it.
--
-- With p_epoch and p_expected the stream must be in that epoch, and the next offset must be that one.
--
-- Entries are inserted in the order of their keys: appends to two streams of one key space cannot deadlock.
-- Relies on log_entries_key and log_keys_pkey.
create or replace function tallyman.log_append(
  p_tenant text, p_stream text, p_key_space text, p_key_hashes uuid[], p_keys text[], p_hashes text,
  p_bytes integer[], p_payloads text, p_strict boolean, p_careful boolean, p_epoch uuid, p_expected bigint,
  out first bigint, out taken json
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  -- Parsed before the lock is taken, so that other appenders do not wait for it.
  v_payloads json[] := string_to_array(p_payloads, E'\n')::json[];
  v_hashes bytea := decode(p_hashes, 'hex');
  v_new integer[];
  v_chains bytea[];
  v_stream tallyman.log_streams := tallyman.log_stream(p_tenant, p_stream, p_key_space, p_epoch);
  v_at timestamptz := greatest(clock_timestamp(), v_stream.appended_at);
begin
  -- Only now, under the lock, do statements take their snapshots: they see every key there is.
  first := v_stream.next_offset;
  if p_expected <> first then
    raise exception 'the next offset of stream "%" is %, not %', p_stream, first, p_expected using errcode = 'TM023';
  end if;
  if not p_careful and not exists (select 1 from tallyman.log_keys k where k.key_hash = any (p_key_hashes)) then
    begin
      v_chains := tallyman.log_chains(v_stream.chain, first, p_keys, v_hashes, null);
      insert into tallyman.log_entries
        (stream, "offset", appended_at, key_hash, key, digest, chain, bytes, payload)
      select v_stream.id, first - 1 + i.n, v_at, i.key_hash, i.key,
             substring(v_hashes from i.n::integer * 64 - 63 for 32), i.chain, i.bytes, i.payload
        from unnest(p_key_hashes, p_keys, v_chains, p_bytes, v_payloads) with ordinality
          as i (key_hash, key, chain, bytes, payload, n)
       order by i.key_hash;
    exception when unique_violation then
      v_chains := null;
    end;
  end if;

  if v_chains is null then
    taken := tallyman.log_taken(p_key_hashes);
    perform tallyman.log_refuse(p_stream, p_keys, v_hashes, taken) where p_strict;
    v_new := array(select n from generate_series(1, cardinality(p_keys)) as n
                   except select (t ->> 0)::integer from json_array_elements(taken) t order by 1);
    v_chains := tallyman.log_chains(v_stream.chain, first, p_keys, v_hashes, v_new);
    insert into tallyman.log_entries
      (stream, "offset", appended_at, key_hash, key, digest, chain, bytes, payload)
    select v_stream.id, first - 1 + i.place, v_at, p_key_hashes[i.n], p_keys[i.n],
           substring(v_hashes from i.n * 64 - 63 for 32), i.chain, p_bytes[i.n], v_payloads[i.n]
      from unnest(v_new, v_chains) with ordinality as i (n, chain, place)
     order by p_key_hashes[i.n];
  end if;
  if cardinality(v_chains) > 0 then
    -- Not inside the block above: a row that a transaction has locked and its subtransaction changes costs a multixact.
    update tallyman.log_streams s
       set next_offset = first + cardinality(v_chains), chain = v_chains[cardinality(v_chains)], appended_at = v_at,
           bytes = s.bytes + (select sum(b) from unnest(p_bytes) with ordinality as b (b, n)
                               where v_new is null or n = any (v_new))
     where s.id = v_stream.id;
  end if;
end $$;

-- The chain hashes of entries from an offset on. p_new says which; null: all of them.
create or replace function tallyman.log_chains(
  p_chain bytea, p_first bigint, p_keys text[], p_hashes bytea, p_new integer[]
) returns bytea[]
language plpgsql immutable as $$
declare
  v_chains bytea[] := '{}';
  v_chain bytea := p_chain;
  v_n integer;
begin
  for v_i in 1..coalesce(cardinality(p_new), cardinality(p_keys)) loop
    v_n := coalesce(p_new[v_i], v_i);
    v_chain := sha256(v_chain || int8send(p_first - 1 + v_i) || substring(p_hashes from v_n * 64 - 63 for 64)
                      || convert_to(p_keys[v_n], 'UTF8'));
    v_chains[v_i] := v_chain;
  end loop;
  return v_chains;
end $$;

-- Which of the keys are taken, by which entry: [[n, stream, offset, digest], ...]. Of a trimmed entry half of the digest is known.
create or replace function tallyman.log_taken(p_key_hashes uuid[]) returns json
language sql stable as $$
  select coalesce(json_agg(json_build_array(i.n, coalesce(e.stream, k.stream), coalesce(e."offset", k."offset"),
                                            coalesce(encode(e.digest, 'hex'), replace(k.digest::text, '-', '')))
                           order by i.n), '[]')
    from unnest(p_key_hashes) with ordinality as i (key_hash, n)
    left join tallyman.log_entries e on e.key_hash = i.key_hash
    left join tallyman.log_keys k on k.key_hash = i.key_hash
   where e.key_hash is not null or k.key_hash is not null
$$;

-- Raises TM010 if a key is taken by other content.
create or replace function tallyman.log_refuse(p_stream text, p_keys text[], p_hashes bytea, p_taken json) returns void
language plpgsql as $$
declare
  v_key text := (
    select p_keys[(t ->> 0)::integer] from json_array_elements(p_taken) t
     where not starts_with(encode(substring(p_hashes from (t ->> 0)::integer * 64 - 63 for 32), 'hex'), t ->> 3)
     limit 1);
begin
  if v_key is not null then
    raise exception 'key "%" of stream "%" was appended before with other content', v_key, p_stream
      using errcode = 'TM010';
  end if;
end $$;

-- Trimming takes three steps, each in a transaction of its own, so that appenders wait for none that takes long:
--
--   1. log_copy_keys   the keys of the entries go to log_keys. No lock.
--   2. log_advance     first_offset moves on. It locks the streams of the key space for a moment: afterwards every append
--                      that has not looked into log_keys since step 1 is over.
--   3. log_drop        the entries below first_offset are deleted. No lock. A key is in log_keys by then, and every append
--                      looks there, so it does not matter when its entry goes.
--
-- A process that dies in between leaves entries that the next trim drops; reads do not see them.

-- Returns the end of what was copied (the first offset behind it), and its bytes.
create or replace function tallyman.log_copy_keys(
  p_stream integer, p_from bigint, p_up_to bigint, p_limit integer, out ended bigint, out bytes bigint
)
language plpgsql
set enable_seqscan = off
as $$
begin
  ended := least(p_up_to + 1, p_from + p_limit,
                 (select s.next_offset from tallyman.log_streams s where s.id = p_stream));
  insert into tallyman.log_keys ("offset", key_hash, digest, stream)
  select e."offset", e.key_hash, encode(substring(e.digest from 1 for 16), 'hex')::uuid, e.stream
    from tallyman.log_entries e
   where e.stream = p_stream and e."offset" >= p_from and e."offset" < ended
   order by e.key_hash
  on conflict do nothing;
  bytes := coalesce((select sum(e.bytes) from tallyman.log_entries e
                      where e.stream = p_stream and e."offset" >= p_from and e."offset" < ended), 0);
end $$;

-- False if somebody else has trimmed meanwhile.
create or replace function tallyman.log_advance(p_stream integer, p_from bigint, p_ended bigint, p_bytes bigint)
returns boolean
language plpgsql as $$
begin
  perform 1 from tallyman.log_streams s
    join tallyman.log_streams o on o.tenant_id = s.tenant_id and o.key_space = s.key_space
   where s.id = p_stream order by o.id for no key update of o;
  update tallyman.log_streams s set first_offset = p_ended, bytes = s.bytes - p_bytes
   where s.id = p_stream and s.first_offset = p_from;
  return found;
end $$;

create or replace function tallyman.log_drop(p_stream integer, p_limit integer) returns integer
language plpgsql
set enable_seqscan = off
as $$
declare
  v_dropped integer;
begin
  delete from tallyman.log_entries e
   where e.stream = p_stream
     and e."offset" in (
       select d."offset" from tallyman.log_entries d
        where d.stream = p_stream
          and d."offset" < (select s.first_offset from tallyman.log_streams s where s.id = p_stream)
        order by d."offset" limit p_limit);
  get diagnostics v_dropped = row_count;
  return v_dropped;
end $$;

-- The first offset that was appended at this time or later; the next one if there is none. Times never decrease along the
-- offsets, so it halves the range: no index on the time.
create or replace function tallyman.log_offset_at(p_stream integer, p_at timestamptz) returns bigint
language plpgsql stable
set enable_seqscan = off
as $$
declare
  v_low bigint;
  v_high bigint;
  v_middle bigint;
begin
  select s.first_offset, s.next_offset into v_low, v_high from tallyman.log_streams s where s.id = p_stream;
  while v_low < v_high loop
    v_middle := (v_low + v_high) / 2;
    -- A new epoch may have skipped offsets.
    if (select e.appended_at < p_at from tallyman.log_entries e
         where e.stream = p_stream and e."offset" >= v_middle order by e."offset" limit 1) then
      v_low := v_middle + 1;
    else
      v_high := v_middle;
    end if;
  end loop;
  return v_low;
end $$;

-- Starts a new epoch: after a restore, or when a peer has seen offsets that this database does not have. Offsets go on
-- from p_next_offset, if that is higher.
create or replace function tallyman.log_new_epoch(p_stream integer, p_next_offset bigint) returns uuid
language plpgsql as $$
declare
  v_epoch uuid := gen_random_uuid();
begin
  update tallyman.log_streams s
     set epoch = v_epoch, chain = sha256(s.chain || uuid_send(v_epoch)),
         next_offset = greatest(s.next_offset, p_next_offset)
   where s.id = p_stream;
  return v_epoch;
end $$;
