-- Hooks for other parts. They name the change; which table it is in stays internal to the engine.
--
--   dead_letters    after a statement that made dead letters; the transition table `changed` holds them
--   dead_letter_rows  before a dead letter is written, once for each; `new` is the row, and the function returns it, perhaps with
--                   another entity_type and entity_id
--   blocked_lanes   after a lane became blocked, once for each; `new` is the lane
--
-- The trigger function runs in the transaction that makes the change. What it raises fails that transaction, so it must
-- catch its own errors. Blocked lanes have a trigger for each row: one with a transition table would run at every
-- update of a lane, on the hot path. One on this column runs only for statements that name it.
create or replace function tallyman.on_change(p_what text, p_function regprocedure) returns void
language plpgsql as $$
declare
  v_name name := 'on_change_' || replace(split_part(p_function::text, '(', 1), '.', '_');
begin
  case p_what
    when 'dead_letters' then
      execute format('create or replace trigger %I after insert on tallyman.dead_letters
                        referencing new table as changed for each statement execute function %s',
                     v_name, p_function);
    when 'dead_letter_rows' then
      execute format('create or replace trigger %I before insert on tallyman.dead_letters
                        for each row execute function %s',
                     v_name, p_function);
    when 'blocked_lanes' then
      execute format('create or replace trigger %I after update of blocked_at on tallyman.lanes
                        for each row when (old.blocked_at is null and new.blocked_at is not null) execute function %s',
                     v_name, p_function);
    else
      raise exception 'there is no hook "%"', p_what
        using errcode = 'TM002', hint = 'There are dead_letters, dead_letter_rows and blocked_lanes.';
  end case;
end $$;
