-- One spelling for times that are compared with audit events.
create or replace function passports.utc(p_at timestamptz) returns text
language sql stable parallel safe as $$
  select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
$$;

create or replace function passports.digest(p_text text) returns text
language sql immutable parallel safe as $$
  select encode(sha256(convert_to(coalesce(p_text, ''), 'UTF8')), 'hex');
$$;

-- What a document said: its facts with row and column. Written into the audit event that settles the document.
-- Relies on the primary key of fact_sources.
create or replace function passports.facts_digest(p_document_version uuid) returns text
language sql stable as $$
  select passports.digest(string_agg(l.line, E'\n' order by l.line collate "C"))
    from (select jsonb_build_array(f.fact_type, f.fact_key, f.schema_version, f.payload_hash, s.row_number, s.column_name)::text as line
            from passports.fact_sources s join passports.facts f on f.id = s.fact_id
           where s.document_version_id = p_document_version) l;
$$;

-- What a snapshot lists. Written into the audit event that seals it. Relies on the primary keys of its two lists.
create or replace function passports.snapshot_digest(p_snapshot uuid) returns text
language sql stable as $$
  select passports.digest(string_agg(l.line, E'\n' order by l.line collate "C"))
    from (select jsonb_build_array('document', v.id, v.sha256)::text as line
            from passports.snapshot_documents d join passports.document_versions v on v.id = d.document_version_id
           where d.snapshot_id = p_snapshot
          union all
          select jsonb_build_array('fact', f.fact_type, f.fact_key, f.schema_version, f.payload_hash)::text
            from passports.snapshot_facts n join passports.facts f on f.id = n.fact_id
           where n.snapshot_id = p_snapshot) l;
$$;
