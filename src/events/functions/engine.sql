-- Events of the engine: `job.dead_letter` and `lane.blocked`.
--
-- An event that cannot be written must not stop a job from ending: it becomes a warning in the server's log.

create or replace function tallyman_events.on_dead_letters() returns trigger
language plpgsql as $$
begin
  perform tallyman_events.emit_many(
    array_agg('job.dead_letter'::text), array_agg('job'::text), array_agg(c.id::text),
    array_agg(json_build_object(
      'id', c.id::text, 'source', c.source, 'queue', c.queue, 'kind', c.kind, 'lane', c.lane,
      'attempts', c.attempts, 'redrives', c.redrives, 'correlation_id', coalesce(c.correlation_id, c.id::text),
      'error', json_build_object('code', c.last_error ->> 'code', 'message', c.last_error ->> 'message'))),
    array_agg(c.tenant_id))
    from changed c having count(*) > 0;
  return null;
exception when others then
  raise warning 'job.dead_letter was not emitted: %', sqlerrm;
  return null;
end $$;

create or replace function tallyman_events.on_blocked_lane() returns trigger
language plpgsql as $$
begin
  perform tallyman_events.emit(
    'lane.blocked', 'lane', new.id::text,
    json_build_object('key', new.key, 'queue', new.queue, 'blocked_by', new.blocked_by::text),
    tenant_id => new.tenant_id);
  return null;
exception when others then
  raise warning 'lane.blocked of lane % was not emitted: %', new.id, sqlerrm;
  return null;
end $$;

select tallyman.on_change('dead_letters', 'tallyman_events.on_dead_letters()');
select tallyman.on_change('blocked_lanes', 'tallyman_events.on_blocked_lane()');
