-- What must not change does not change, whichever program writes. Owners of the tables can still drop these triggers: the
-- audit (passports audit) and replay find what was changed behind them.

create or replace function passports.refuse(p_code text, p_message text) returns void
language plpgsql as $$
begin
  raise exception using message = p_code || ': ' || p_message, errcode = 'BPC01', detail = p_code;
end $$;

-- For tables that rows are only added to, and for every table against delete and truncate: what has ended stays, with its state.
create or replace function passports.append_only() returns trigger
language plpgsql as $$
begin
  perform passports.refuse('VALIDATION_ERROR',
    format('rows of passports.%s are never changed or deleted', tg_table_name));
  return null;
end $$;

create or replace function passports.guard_document_version() returns trigger
language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    if new.state <> 'UPLOADED' then
      perform passports.refuse('VALIDATION_ERROR', 'a document version begins as UPLOADED');
    end if;
    if encode(sha256(new.bytes), 'hex') <> new.sha256 then
      perform passports.refuse('VALIDATION_ERROR', format('the bytes of document version %s have another SHA-256', new.id));
    end if;
    return new;
  end if;
  if (new.id, new.tenant_id, new.document_id, new.number, new.format, new.sha256, new.created_at)
       is distinct from (old.id, old.tenant_id, old.document_id, old.number, old.format, old.sha256, old.created_at)
     or new.bytes is distinct from old.bytes then
    perform passports.refuse('VALIDATION_ERROR', format('document version %s is immutable: upload a new version', old.id));
  end if;
  if (old.state, new.state) not in (('UPLOADED', 'PARSED'), ('UPLOADED', 'REJECTED'), ('PARSED', 'VALIDATED'), ('PARSED', 'REJECTED')) then
    perform passports.refuse('VALIDATION_ERROR',
      format('document version %s is %s and cannot become %s', old.id, old.state, new.state));
  end if;
  return new;
end $$;

-- A document gives facts while it is parsed, and none later: what a sealed snapshot selects stays what it was.
create or replace function passports.guard_new_sources() returns trigger
language plpgsql as $$
declare
  v_settled uuid;
begin
  select v.id into v_settled
    from (select distinct n.document_version_id as id from new_rows n) s
    join passports.document_versions v on v.id = s.id where v.state <> 'PARSED' limit 1;
  if found then
    perform passports.refuse('VALIDATION_ERROR', format('document version %s is not being parsed: it gives no more facts', v_settled));
  end if;
  return null;
end $$;

create or replace function passports.guard_snapshot() returns trigger
language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    if new.state <> 'BUILDING' then
      perform passports.refuse('SNAPSHOT_NOT_READY', 'a snapshot begins as BUILDING');
    end if;
    return new;
  end if;
  if old.state = 'SEALED' then
    perform passports.refuse('SNAPSHOT_SEALED', format('snapshot %s is sealed and cannot be changed', old.id));
  end if;
  if (new.id, new.tenant_id, new.product_id, new.next, new.created_at)
       is distinct from (old.id, old.tenant_id, old.product_id, old.next, old.created_at)
     or (old.state = 'READY' and (new.hash, new.fact_count) is distinct from (old.hash, old.fact_count))
     or (old.state, new.state) not in (('BUILDING', 'BUILDING'), ('BUILDING', 'READY'), ('READY', 'SEALED')) then
    perform passports.refuse('SNAPSHOT_NOT_READY', format('snapshot %s is %s and cannot become %s', old.id, old.state, new.state));
  end if;
  return new;
end $$;

-- The lists of a snapshot grow while it is BUILDING, and at no other time.
create or replace function passports.guard_snapshot_lists() returns trigger
language plpgsql as $$
declare
  v_sealed record;
begin
  select s.id, s.state into v_sealed
    from (select distinct n.snapshot_id as id from new_rows n) l
    join passports.snapshots s on s.id = l.id where s.state <> 'BUILDING' limit 1;
  if found then
    perform passports.refuse('SNAPSHOT_SEALED', format('snapshot %s is %s: what it lists cannot change', v_sealed.id, v_sealed.state));
  end if;
  return null;
end $$;

-- Whether a report tells the truth SQL cannot say. So only the program that runs the cases may write one, as the user that
-- connected; a session that has no more than the role of tenants may not.
create or replace function passports.guard_rule_report() returns trigger
language plpgsql as $$
begin
  if tallyman.acts_for_tenant() then
    perform passports.refuse('RULE_TESTS_FAILED', 'a report on test cases is written by the program that runs them, not by a tenant');
  end if;
  return new;
end $$;

-- A package becomes PUBLISHED only with a report on exactly this content in which each of its cases, by name, has passed. A
-- package without cases has no such report. SQL cannot run CEL: every process that compiles with the package runs the cases again.
create or replace function passports.guard_rule_package() returns trigger
language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    if new.state <> 'DRAFT' then
      perform passports.refuse('RULE_PKG_NOT_PUBLISHED', 'a rule package begins as DRAFT');
    end if;
    return new;
  end if;
  if new.state <> old.state and (old.state, new.state) not in
       (('DRAFT', 'VALIDATED'), ('VALIDATED', 'DRAFT'), ('VALIDATED', 'PUBLISHED'), ('PUBLISHED', 'DEPRECATED'), ('DEPRECATED', 'RETIRED')) then
    perform passports.refuse('RULE_PKG_NOT_PUBLISHED', format('rule package %s %s is %s and cannot become %s',
      old.name, old.version, old.state, new.state));
  end if;
  if (new.id, new.tenant_id, new.created_at) is distinct from (old.id, old.tenant_id, old.created_at)
     or (new.published_at is distinct from old.published_at and not (old.state = 'VALIDATED' and new.state = 'PUBLISHED'))
     or ((old.state <> 'DRAFT' or new.state <> 'DRAFT') and (new.content, new.hash, new.name, new.version) is distinct from (old.content, old.hash, old.name, old.version)) then
    perform passports.refuse('VALIDATION_ERROR', format('rule package %s %s is %s: publish a new version', old.name, old.version, old.state));
  end if;
  if new.state = 'PUBLISHED' and old.state <> 'PUBLISHED' and not exists (
       select 1 from passports.rule_reports r
        where r.tenant_id = new.tenant_id and r.rules_hash = new.hash and r.passed
          and not exists (select 1 from jsonb_array_elements(r.outcomes) o where not (o ->> 'passed')::boolean)
          and (select array_agg(o ->> 'name' order by n) from jsonb_array_elements(r.outcomes) with ordinality as o (o, n))
            = (select array_agg(c ->> 'name' order by n)
                 from jsonb_array_elements(new.content::jsonb -> 'testCases') with ordinality as c (c, n))) then
    perform passports.refuse('RULE_TESTS_FAILED', format(
      'rule package %s %s has no report in which all its test cases pass: run the cases, correct the rules, publish again',
      old.name, old.version));
  end if;
  return new;
end $$;

create or replace function passports.guard_version() returns trigger
language plpgsql as $$
declare
  -- A version that nobody has signed yet is compiled again for another key: key and receipt change together.
  v_rekeyed constant boolean := tg_op = 'UPDATE' and coalesce(old.state = 'COMPILING' and new.state = 'COMPILING'
    and old.signature is null and new.signature is null
    and new.signing_key <> old.signing_key and new.receipt_hash <> old.receipt_hash, false);
begin
  if tg_op = 'INSERT' then
    if new.state <> 'COMPILING' or new.receipt_hash is not null then
      perform passports.refuse('VALIDATION_ERROR', 'a version begins as COMPILING, without artefacts');
    end if;
    if not exists (select 1 from passports.snapshots s where s.id = new.snapshot_id and s.state = 'SEALED') then
      perform passports.refuse('SNAPSHOT_NOT_READY', format('snapshot %s is not sealed', new.snapshot_id));
    end if;
    if not exists (select 1 from passports.rule_packages p where p.id = new.rules_id and p.state in ('PUBLISHED', 'DEPRECATED')) then
      perform passports.refuse('RULE_PKG_NOT_PUBLISHED', format('rule package %s is not published', new.rules_id));
    end if;
    return new;
  end if;
  if (new.id, new.tenant_id, new.passport_id, new.number, new.snapshot_id, new.rules_id, new.model_version_id, new.product,
      new.item, new.issued_at, new.build, new.salt, new.created_at)
       is distinct from
     (old.id, old.tenant_id, old.passport_id, old.number, old.snapshot_id, old.rules_id, old.model_version_id, old.product,
      old.item, old.issued_at, old.build, old.salt, old.created_at)
     or (new.signing_key <> old.signing_key and not v_rekeyed) then
    perform passports.refuse('VALIDATION_ERROR', format('the inputs of version %s are fixed', old.id));
  end if;
  if (old.receipt_hash is not null and not v_rekeyed and (new.payload_hash, new.proof_hash, new.receipt_hash)
        is distinct from (old.payload_hash, old.proof_hash, old.receipt_hash))
     or (old.signature is not null and new.signature is distinct from old.signature)
     or (old.qr_png is not null and (new.qr_png is distinct from old.qr_png or new.qr_text is distinct from old.qr_text)) then
    perform passports.refuse('VALIDATION_ERROR', format('hashes, signature and code of version %s are written once', old.id));
  end if;
  if new.state = old.state and (new.signed_at, new.active_at, new.ended_at, new.reason, new.signature)
        is distinct from (old.signed_at, old.active_at, old.ended_at, old.reason, old.signature) then
    perform passports.refuse('VALIDATION_ERROR', format('version %s stays %s: its times, reason and signature stay, too', old.id, old.state));
  end if;
  if new.state <> old.state and (old.state, new.state) not in
       (('COMPILING', 'SIGNED'), ('SIGNED', 'ACTIVE'), ('ACTIVE', 'SUPERSEDED'), ('ACTIVE', 'REVOKED'), ('SIGNED', 'REVOKED')) then
    perform passports.refuse('VALIDATION_ERROR', format('version %s is %s and cannot become %s', old.id, old.state, new.state));
  end if;
  if new.state <> old.state and new.state = 'ACTIVE'
     and exists (select 1 from passports.items i where i.passport_id = new.passport_id and i.ceased_at is not null) then
    perform passports.refuse('VALIDATION_ERROR', format('the passport of version %s has ceased', old.id));
  end if;
  return new;
end $$;

-- Artefacts change with the key of a version that nobody has signed yet, and then to exactly what its new receipt says.
create or replace function passports.guard_artefact() returns trigger
language plpgsql as $$
begin
  if (new.version_id, new.tenant_id) is distinct from (old.version_id, old.tenant_id) or new.receipt = old.receipt
     or not exists (select 1 from passports.versions v
                     where v.id = old.version_id and v.state = 'COMPILING' and v.signature is null
                       and v.receipt_hash = encode(sha256(convert_to(new.receipt, 'UTF8')), 'hex')) then
    perform passports.refuse('VALIDATION_ERROR', format('the artefacts of version %s are written once', old.version_id));
  end if;
  return new;
end $$;

create or replace function passports.guard_export() returns trigger
language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    if new.made_at is not null or new.input_hash <> encode(sha256(convert_to(new.input, 'UTF8')), 'hex') then
      perform passports.refuse('VALIDATION_ERROR', 'an export begins as a request, without bytes');
    end if;
    return new;
  end if;
  if old.made_at is not null
     or (new.id, new.tenant_id, new.version_id, new.format, new.reader, new.input, new.input_hash, new.created_at)
          is distinct from
        (old.id, old.tenant_id, old.version_id, old.format, old.reader, old.input, old.input_hash, old.created_at) then
    perform passports.refuse('VALIDATION_ERROR', format('export %s is made once and never changed: request a new one', old.id));
  end if;
  if (new.sha256, new.size) is distinct from (encode(sha256(new.bytes), 'hex'), octet_length(new.bytes)) then
    perform passports.refuse('VALIDATION_ERROR', format('the bytes of export %s have another SHA-256 or size', old.id));
  end if;
  return new;
end $$;

create or replace function passports.guard_item() returns trigger
language plpgsql as $$
begin
  if (new.passport_id, new.tenant_id, new.gtin, new.serial, new.manufactured_on, new.manufactured_at, new.created_at)
       is distinct from
     (old.passport_id, old.tenant_id, old.gtin, old.serial, old.manufactured_on, old.manufactured_at, old.created_at)
     or old.ceased_at is not null then
    perform passports.refuse('VALIDATION_ERROR', format('battery %s has ceased, or its number would change', old.serial));
  end if;
  return new;
end $$;

-- Names may be corrected; passports carry the rest.
create or replace function passports.guard_product() returns trigger
language plpgsql as $$
begin
  if (new.tenant_id, new.id, new.category, new.gtin, new.created_at)
       is distinct from (old.tenant_id, old.id, old.category, old.gtin, old.created_at) then
    perform passports.refuse('VALIDATION_ERROR', format('product %s keeps its id, category and GTIN', old.id));
  end if;
  return new;
end $$;

-- Covered once, by one head; nothing else changes.
create or replace function passports.guard_audit_event() returns trigger
language plpgsql as $$
begin
  if old.head is not null or new.head is null or new.position <> old.position
     or (new.tenant_id, new.aggregate_type, new.aggregate_id, new.seq, new.type, new.at, new.data, new.previous, new.hash)
          is distinct from
        (old.tenant_id, old.aggregate_type, old.aggregate_id, old.seq, old.type, old.at, old.data, old.previous, old.hash) then
    perform passports.refuse('VALIDATION_ERROR', 'audit events are never changed or deleted');
  end if;
  return new;
end $$;

create or replace trigger guard before update on passports.products
  for each row execute function passports.guard_product();
create or replace trigger guard before insert or update on passports.document_versions
  for each row execute function passports.guard_document_version();
create or replace trigger guard after insert on passports.fact_sources
  referencing new table as new_rows for each statement execute function passports.guard_new_sources();
create or replace trigger guard before insert or update on passports.snapshots
  for each row execute function passports.guard_snapshot();
create or replace trigger guard after insert on passports.snapshot_documents
  referencing new table as new_rows for each statement execute function passports.guard_snapshot_lists();
create or replace trigger guard after insert on passports.snapshot_facts
  referencing new table as new_rows for each statement execute function passports.guard_snapshot_lists();
create or replace trigger guard before insert or update on passports.rule_packages
  for each row execute function passports.guard_rule_package();
create or replace trigger guard before insert on passports.rule_reports
  for each row execute function passports.guard_rule_report();
create or replace trigger guard before insert or update on passports.versions
  for each row execute function passports.guard_version();
create or replace trigger guard before update on passports.artefacts
  for each row execute function passports.guard_artefact();
create or replace trigger guard before insert or update on passports.exports
  for each row execute function passports.guard_export();
create or replace trigger guard before update on passports.items
  for each row execute function passports.guard_item();
create or replace trigger guard before update on passports.audit_events
  for each row execute function passports.guard_audit_event();

-- Every table, also one that a later migration adds: no row is ever deleted, and where no guard above says what may change,
-- nothing may. A table emptied at once fires no trigger for rows.
do $$
declare
  v_table record;
begin
  for v_table in
    select c.oid, c.relname as name,
           exists (select 1 from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'guard' and t.tgtype & 16 <> 0) as has_guard
      from pg_class c where c.relnamespace = 'passports'::regnamespace and c.relkind = 'r' order by 2 loop
    execute format('create or replace trigger keep before %s on passports.%I for each row execute function passports.append_only()',
      case when v_table.has_guard then 'delete' else 'update or delete' end, v_table.name);
    execute format('create or replace trigger keep_all before truncate on passports.%I
      for each statement execute function passports.append_only()', v_table.name);
  end loop;
end $$;
