-- Letting go of lanes: what becomes of a lane when its holder is done with it.

-- Lets go of lanes that the caller holds, as far as that is possible at once. A lane with work left goes back to its
-- stream. One without work comes to rest, but not while a writer has looked at the lane and not committed yet: the
-- writer would not wake it, and its job is not visible here. So resting takes the gate; if a writer has the gate, the
-- lane is kept. Nothing here waits. Returns the lanes that were let go, and whether one is back on its stream.
create or replace function tallyman.let_go(
  p_lanes bigint[], p_positions bigint[], p_floors bigint[], p_more boolean[],
  out lanes bigint[], out requeued boolean
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_lanes bigint[];
  v_floors bigint[];
begin
  perform pg_current_xact_id();
  requeued := false;
  lanes := '{}';
  if array_position(p_more, false) is not null then
    with locked as (
      select l.id, greatest(l.floor, d.floor) as floor
        from (select * from unnest(p_lanes, p_positions, p_floors, p_more) as d (id, pos, floor, more)
               where not d.more order by d.id offset 0) d,
             lateral (select l.id, l.floor from tallyman.lanes l
                       where l.id = d.id and l.pos = d.pos and not l.rewound and l.blocked_at is null
                         for update skip locked) l,
             lateral (select 1 from tallyman.lane_gates g where g.lane = d.id for update skip locked) g
    )
    select coalesce(array_agg(l.id), '{}'), coalesce(array_agg(l.floor), '{}') into lanes, v_floors from locked l;
    -- A statement of its own: its snapshot is younger than the locks, so a job that a writer committed into the
    -- lane before we got the gate is seen here, and one that comes after finds the lane at rest and wakes it.
    requeued := tallyman.rest_lanes(lanes, v_floors, true);
  end if;
  -- With work left, or for a person to decide: the gate is not needed.
  if cardinality(lanes) < cardinality(p_lanes) then
    with locked as (
      select l.id, case when l.rewound then l.floor else greatest(l.floor, d.floor) end as floor
        from (select * from unnest(p_lanes, p_positions, p_floors, p_more) as d (id, pos, floor, more)
               order by d.id offset 0) d,
             lateral (select l.id, l.floor, l.rewound from tallyman.lanes l
                       where l.id = d.id and l.pos = d.pos and (d.more or l.rewound or l.blocked_at is not null)
                         for update skip locked) l
    )
    select array_agg(l.id), array_agg(l.floor) into v_lanes, v_floors from locked l;
    if v_lanes is not null then
      requeued := tallyman.rest_lanes(v_lanes, v_floors, false) or requeued;
      lanes := lanes || v_lanes;
    end if;
  end if;
end $$;

-- Decides what a lane that is no longer held does next: back on its stream, waiting for its head, or at rest.
-- The caller has the lanes' rows locked, and says below what nothing is pending; to let a lane rest (p_may_rest) it has
-- its gate, too. Otherwise a lane in which nothing is seen goes back to its stream: its next holder lets it rest.
-- Returns whether one went back to its stream. Relies on jobs_in_lane.
create or replace function tallyman.rest_lanes(p_lanes bigint[], p_floors bigint[], p_may_rest boolean) returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_requeued boolean;
  -- Not now(): a job that was committed after this transaction began is due as well, and nobody would look for it.
  v_now timestamptz := clock_timestamp();
begin
  -- Not joined with the lists, but each lane's floor looked up: see complete.sql on plans.
  with rested as (
    update tallyman.lanes l
       set rewound = false,
           rested_at = now(),
           (pos, due_at, stream, floor) = (
             select case when l.blocked_at is null and (h.scheduled_at <= v_now or h.pos is null and not p_may_rest)
                         then nextval('tallyman.positions') end,
                    case when l.blocked_at is null and h.scheduled_at > v_now then h.scheduled_at end,
                    coalesce(h.stream, l.stream),
                    coalesce(h.pos, d.floor)
               from (select p_floors[array_position(p_lanes, l.id)] as floor) d
               left join lateral (select j.pos, j.scheduled_at, j.stream from tallyman.jobs j
                                   where j.lane = l.id and j.pos >= d.floor order by j.pos limit 1) h on true)
     where l.id = any (p_lanes)
    returning l.pos
  )
  select coalesce(bool_or(r.pos is not null), false) into v_requeued from rested r;
  return v_requeued;
end $$;
