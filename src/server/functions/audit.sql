-- The audit is for adding and reading. Only retention deletes, and says so (src/server/audit/retention.ts); what somebody
-- else changes is refused, and found by `tallyman audit verify` if it was forced.
create or replace function tallyman_server.keep_audit() returns trigger
language plpgsql as $$
begin
  if current_setting('tallyman_server.audit_retention', true) = 'on' and not tallyman.acts_for_tenant()
     and tg_op <> 'TRUNCATE' then
    return null;
  end if;
  raise exception '% on % is refused: the audit is for adding and reading', tg_op, tg_table_name
    using errcode = '42501', hint = 'Old events go by themselves: server.auditKeepDays.';
end $$;

create or replace trigger keep_audit before update or delete or truncate on tallyman_server.audit_events
  for each statement execute function tallyman_server.keep_audit();
create or replace trigger keep_audit before update or delete or truncate on tallyman_server.audit_seals
  for each statement execute function tallyman_server.keep_audit();
