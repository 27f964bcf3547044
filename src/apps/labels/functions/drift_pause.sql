-- How long the drift check skips a page that has drifted this often in a row: a label that fell off its shelf must not be
-- pushed to forever at full speed. Not at all the first time, then 10, 20, 40 ... minutes, at most a day.
create or replace function labels.drift_pause(p_drifts integer) returns interval
language sql immutable as $$
  select case when p_drifts = 0 then interval '0'
              else least(interval '1 day', interval '10 minutes' * 2 ^ least(p_drifts - 1, 20)) end
$$;
