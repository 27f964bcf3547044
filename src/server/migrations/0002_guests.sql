-- Keys for people outside of a tenant: `access` says what a key of the role `guest` may see, such as `passports.authority`.
alter table tallyman_server.api_keys
  drop constraint api_keys_role_check,
  add constraint api_keys_role_check check (role in ('admin', 'operator', 'auditor', 'producer', 'guest')),
  add column access text check (octet_length(access) between 1 and 128),
  add constraint api_keys_access_of_guests check ((role = 'guest') = (access is not null));
