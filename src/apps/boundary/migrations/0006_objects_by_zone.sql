-- To which zone a fact goes that names an object: a peer may read what facts to its zone name, and nothing else.
--
-- The key begins with what such a question names, so that it needs no other index.

alter table boundary.holds add column to_zone text collate "C";

-- Of facts whose stream was not indexed: nobody else may read their objects, until they are held again.
update boundary.holds h set to_zone = coalesce(
  (select min(s.to_zone) from boundary.subjects s
    where s.tenant_id = h.tenant_id and s.buffer = h.buffer and s.from_zone = h.from_zone and s.message_id = h.message_id), '');

alter table boundary.holds
  drop constraint holds_pkey,
  alter column to_zone set not null,
  add primary key (tenant_id, bucket, key, buffer, to_zone, from_zone, message_id);
