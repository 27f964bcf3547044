-- How long a page that has drifted so often in a row is left alone before it is looked at again: a label that fell off
-- its shelf must not be pushed to for ever at full speed. The first time not at all, then 10, 20, 40 ... minutes, a day at
-- the most.
create or replace function labels.drift_pause(p_drifts integer) returns interval
language sql immutable as $$
  select case when p_drifts = 0 then interval '0'
              else least(interval '1 day', interval '10 minutes' * 2 ^ least(p_drifts - 1, 20)) end
$$;
