/*
 * What each row says and what the audit events say, as SQL expressions over the row `r` and the events `ev` (rows.ts). Texts
 * are compared with texts. What replay computes again (artefacts, codes, the salt) is not here.
 */

export type Columns = Readonly<Record<string, readonly [is: string, was: string]>>;

/** A table with one row for each aggregate. */
export interface RowCheck {
  readonly aggregate: string;
  readonly table: string;
  readonly key: string;
  /** Which state an event leads to, for a table with a column `state`. */
  readonly states?: Readonly<Record<string, string>>;
  /** Aggregates that have a row in this table. */
  readonly where?: string;
  readonly columns: Columns;
}

/** A table whose rows are told of otherwise. `sql` joins rows and events; the columns to compare follow it. */
export interface SingleCheck {
  readonly table: string;
  readonly sql: string;
  readonly columns: Columns;
}

/** A value of the last event of a type. */
const said = (event: string, name: string): string => `ev.e #>> '{${event},${name}}'`;
const either = (...texts: readonly string[]): string => `coalesce(${texts.join(', ')})`;
const time = (column: string): string => `passports.utc(r.${column})`;
const created: Columns = { created_at: [time('created_at'), 'ev.since'] };
/** The error is there while the newest event says so. */
const failed = (aggregate: string): readonly [string, string] => [
  'case when r.error is not null then passports.digest(r.error::text) end',
  `case when ev.newest = '${aggregate}.failed' then ${said(`${aggregate}.failed`, 'digest')} end`,
];
/** A version that took another key was compiled again. */
const compiledTo = (part: string): string =>
  either(said('version.rekeyed', part), said('version.compiled', part));

export const aggregateChecks: readonly RowCheck[] = [
  {
    aggregate: 'product',
    table: 'products',
    key: 'r.id',
    columns: {
      ...created,
      name: ['r.name', said('product.put', 'name')],
      category: ['r.category', said('product.put', 'category')],
      gtin: ['r.gtin', said('product.put', 'gtin')],
      manufacturer: ['r.manufacturer', said('product.put', 'manufacturer')],
      manufacturer_id: ['r.manufacturer_id', said('product.put', 'manufacturerId')],
    },
  },
  {
    aggregate: 'document',
    table: 'document_versions',
    key: 'r.id::text',
    states: {
      'document.uploaded': 'UPLOADED',
      'document.validated': 'VALIDATED',
      'document.rejected': 'REJECTED',
    },
    columns: {
      ...created,
      document_id: ['r.document_id::text', said('document.uploaded', 'document')],
      number: ['r.number::text', said('document.uploaded', 'number')],
      format: ['r.format', said('document.uploaded', 'format')],
      sha256: ['r.sha256', said('document.uploaded', 'sha256')],
      bytes: [`encode(sha256(r.bytes), 'hex')`, said('document.uploaded', 'sha256')],
      fact_count: ['r.fact_count::text', said('document.validated', 'facts')],
      facts: [
        `case when r.state = 'VALIDATED' then passports.facts_digest(r.id) end`,
        said('document.validated', 'digest'),
      ],
      problems: [
        'case when r.problems is not null then passports.digest(r.problems::text) end',
        said('document.rejected', 'digest'),
      ],
      settled_at: [
        time('settled_at'),
        either(said('document.validated', 'at'), said('document.rejected', 'at')),
      ],
    },
  },
  {
    aggregate: 'snapshot',
    table: 'snapshots',
    key: 'r.id::text',
    states: { 'snapshot.requested': 'BUILDING', 'snapshot.sealed': 'SEALED' },
    columns: {
      ...created,
      product_id: ['r.product_id', said('snapshot.requested', 'product')],
      next: ['r.next', said('snapshot.requested', 'next')],
      error: failed('snapshot'),
      hash: ['r.hash', said('snapshot.sealed', 'hash')],
      fact_count: ['r.fact_count::text', said('snapshot.sealed', 'facts')],
      lists: [
        `case when r.state = 'SEALED' then passports.snapshot_digest(r.id) end`,
        said('snapshot.sealed', 'digest'),
      ],
      sealed_at: [time('sealed_at'), said('snapshot.sealed', 'at')],
    },
  },
  {
    aggregate: 'rules',
    table: 'rule_packages',
    key: 'r.id::text',
    states: {
      'rules.drafted': 'DRAFT',
      'rules.validated': 'VALIDATED',
      'rules.published': 'PUBLISHED',
      'rules.deprecated': 'DEPRECATED',
      'rules.retired': 'RETIRED',
    },
    columns: {
      ...created,
      name: ['r.name', said('rules.drafted', 'name')],
      version: ['r.version', said('rules.drafted', 'version')],
      hash: ['r.hash', said('rules.drafted', 'hash')],
      content: ['passports.digest(r.content)', said('rules.drafted', 'hash')],
      published_at: [time('published_at'), said('rules.published', 'at')],
    },
  },
  {
    aggregate: 'passport',
    table: 'passports',
    key: 'r.id::text',
    columns: {
      ...created,
      product_id: [
        'r.product_id',
        either(said('passport.item_added', 'product'), said('passport.model_added', 'product')),
      ],
      serial: ['r.serial', said('passport.item_added', 'serial')],
    },
  },
  {
    aggregate: 'passport',
    table: 'items',
    key: 'r.passport_id::text',
    where: `ev.e ? 'passport.item_added'`,
    columns: {
      ...created,
      gtin: ['r.gtin', said('passport.item_added', 'gtin')],
      serial: ['r.serial', said('passport.item_added', 'serial')],
      manufactured_on: ['r.manufactured_on', said('passport.item_added', 'made_on')],
      manufactured_at: ['r.manufactured_at', said('passport.item_added', 'made_at')],
      status: [
        'r.status',
        `case when ev.e ? 'passport.ceased' then 'waste' else ${either(
          said('passport.status_changed', 'status'),
          said('passport.item_added', 'status'),
        )} end`,
      ],
      ceased_at: [time('ceased_at'), said('passport.ceased', 'at')],
      ceased_reason: ['r.ceased_reason', said('passport.ceased', 'reason')],
    },
  },
  {
    aggregate: 'version',
    table: 'versions',
    key: 'r.id::text',
    states: {
      'version.requested': 'COMPILING',
      'version.signed': 'SIGNED',
      'version.active': 'ACTIVE',
      'version.superseded': 'SUPERSEDED',
      'version.revoked': 'REVOKED',
    },
    columns: {
      ...created,
      passport_id: ['r.passport_id::text', said('version.requested', 'passport')],
      number: ['r.number::text', said('version.requested', 'number')],
      snapshot_id: ['r.snapshot_id::text', said('version.requested', 'snapshot')],
      rules_id: ['r.rules_id::text', said('version.requested', 'rules')],
      model_version_id: ['r.model_version_id::text', said('version.requested', 'model')],
      issued_at: ['r.issued_at', said('version.requested', 'issued_at')],
      build: ['r.build', said('version.requested', 'build')],
      signing_key: [
        'r.signing_key',
        either(said('version.rekeyed', 'key'), said('version.requested', 'signing_key')),
      ],
      payload_hash: ['r.payload_hash', compiledTo('payload')],
      proof_hash: ['r.proof_hash', compiledTo('proof')],
      receipt_hash: ['r.receipt_hash', compiledTo('receipt')],
      signature: [`encode(r.signature, 'hex')`, said('version.signed', 'signature')],
      signed_at: [time('signed_at'), said('version.signed', 'at')],
      qr_png: [`encode(sha256(r.qr_png), 'hex')`, said('version.labelled', 'png')],
      active_at: [time('active_at'), said('version.active', 'at')],
      ended_at: [time('ended_at'), either(said('version.superseded', 'at'), said('version.revoked', 'at'))],
      reason: ['r.reason', said('version.revoked', 'reason')],
      error: [
        `r.error ->> 'code' || ': ' || (r.error ->> 'message')`,
        `case when ev.newest = 'version.failed' then ${said('version.failed', 'code')} || ': ' || (${said('version.failed', 'message')}) end`,
      ],
    },
  },
  {
    aggregate: 'export',
    table: 'exports',
    key: 'r.id::text',
    columns: {
      ...created,
      version_id: ['r.version_id::text', said('export.requested', 'version')],
      format: ['r.format', said('export.requested', 'format')],
      reader: ['r.reader', said('export.requested', 'reader')],
      input: ['passports.digest(r.input)', said('export.requested', 'input')],
      input_hash: ['r.input_hash', said('export.requested', 'input')],
      sha256: ['r.sha256', said('export.made', 'sha256')],
      size: ['r.size::text', said('export.made', 'size')],
      bytes: [`encode(sha256(r.bytes), 'hex')`, said('export.made', 'sha256')],
      error: failed('export'),
      made_at: [time('made_at'), said('export.made', 'at')],
    },
  },
];

/** Events of one type, each with its row. */
const events = (aggregate: string, type: string): string => `
  (select a.aggregate_id as id, a.at as since, a.data::jsonb as e from passports.audit_events a
    where a.tenant_id = $1 and a.aggregate_type = '${aggregate}' and a.type = '${type}')`;
const rowsOf = (table: string): string => `(select * from passports.${table} t where t.tenant_id = $1) r`;
const paired: Columns = { row: ['(r.tenant_id is not null)::text', '(ev.id is not null)::text'] };

export const singleChecks: readonly SingleCheck[] = [
  {
    table: 'documents',
    sql: `select coalesce(r.id::text, ev.e ->> 'document') as id, c.name, c."is", c.was from ${rowsOf('documents')}
      full join (select * from ${events('document', 'document.uploaded')} u where u.e ->> 'number' = '1') ev
        on ev.e ->> 'document' = r.id::text`,
    columns: {
      ...paired,
      ...created,
      product_id: ['r.product_id', `ev.e ->> 'product'`],
      kind: ['r.kind', `ev.e ->> 'kind'`],
      name: ['r.name', `ev.e ->> 'name'`],
    },
  },
  {
    table: 'facts',
    sql: `select r.id::text as id, c.name, c."is", c.was from ${rowsOf('facts')}`,
    columns: {
      payload: ['passports.digest(r.payload)', 'r.payload_hash'],
      sources: [`exists (select 1 from passports.fact_sources s where s.fact_id = r.id)::text`, `'true'`],
    },
  },
  {
    table: 'rule_reports',
    sql: `select coalesce(r.rules_hash || ' of ' || r.build, ev.e ->> 'hash') as id, c.name, c."is", c.was
      from ${rowsOf('rule_reports')} full join ${events('rules', 'rules.tested')} ev
        on ev.e ->> 'hash' = r.rules_hash and ev.e ->> 'build' = r.build`,
    columns: {
      ...paired,
      ...created,
      outcomes: ['passports.digest(r.outcomes::text)', `ev.e ->> 'outcomes'`],
      passed: ['r.passed::text', `ev.e ->> 'passed'`],
    },
  },
  {
    table: 'item_predecessors',
    sql: `select coalesce(r.passport_id::text, ev.id) as id, c.name, c."is", c.was from ${rowsOf('item_predecessors')}
      full join (select u.id, u.since, p.id as predecessor from ${events('passport', 'passport.predecessors_added')} u,
                        jsonb_array_elements_text(u.e -> 'predecessors') p (id)) ev
        on ev.id = r.passport_id::text and ev.predecessor = r.predecessor_id::text`,
    columns: { ...paired, ...created },
  },
  {
    table: 'item_events',
    sql: `select coalesce(r.passport_id::text, ev.id) || '#' || coalesce(r.seq::text, ev.e ->> 'seq') as id, c.name, c."is", c.was
      from ${rowsOf('item_events')} full join ${events('passport', 'passport.event_added')} ev
        on ev.id = r.passport_id::text and ev.e ->> 'seq' = r.seq::text`,
    columns: {
      ...paired,
      ...created,
      hash: ['r.hash', `ev.e ->> 'hash'`],
      type: ['r.type', `ev.e ->> 'event'`],
      event_key: ['r.event_key', `ev.e ->> 'key'`],
    },
  },
  {
    table: 'artefacts',
    sql: `select coalesce(r.version_id, v.id)::text as id, c.name, c."is", c.was from ${rowsOf('artefacts')}
      full join (select * from passports.versions t where t.tenant_id = $1 and t.receipt_hash is not null) v on v.id = r.version_id`,
    columns: {
      row: ['(r.tenant_id is not null)::text', '(v.id is not null)::text'],
      receipt: ['passports.digest(r.receipt)', 'v.receipt_hash'],
    },
  },
];
