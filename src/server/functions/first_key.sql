-- Notes that a key has existed, whichever program made it: the API, the command line, or a program of the release before.
-- As the owner: tenants make keys, but may not write the note.
create or replace function tallyman_server.note_first_key() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into tallyman_server.first_key default values on conflict do nothing;
  return null;
end $$;

create or replace trigger note_first_key after insert on tallyman_server.api_keys
  for each statement execute function tallyman_server.note_first_key();

-- After the trigger: keys from before it.
insert into tallyman_server.first_key
select where exists (select from tallyman_server.api_keys)
   or exists (select from tallyman_server.audit_events where action = 'keys.create' and outcome = 'done')
on conflict do nothing;
