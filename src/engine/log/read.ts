import type { Database } from '../database/database.ts';
import type { LogEntry } from './entry.ts';
import type { FoundKey } from './log.ts';
import type { ResolvedStream, StreamInfo } from './stream.ts';

type Row = readonly (string | null)[];

/** Relies on log_entries_pkey. The running total is of the entries before, so the first one always fits. */
const logRead = {
  name: 'tm_log_read',
  text: `with s as materialized (
           select id, first_offset from tallyman.log_streams where tenant_id = $1 and name = $2)
         select c."offset", c.key, encode(c.digest, 'hex'), encode(c.chain, 'hex'),
                extract(epoch from c.appended_at) * 1000, c.payload
           from (select e.*, sum(e.bytes) over (order by e."offset") - e.bytes as before
                   from (select e.* from tallyman.log_entries e
                          where e.stream = (select id from s) and e."offset" > $3
                            and e."offset" >= (select first_offset from s)
                          order by e."offset" limit $4) e) c
          where c.before = 0 or c.before + c.bytes <= $5
          order by c."offset"`,
};

export async function entries(
  database: Database,
  { tenantId, name }: ResolvedStream,
  { after, limit, maxBytes }: { readonly after: number; readonly limit: number; readonly maxBytes: number },
): Promise<LogEntry[]> {
  const rows = await database.run(logRead, [tenantId, name, after, limit, maxBytes]);
  return rows.map((row) => toEntry(row));
}

/**
 * Relies on log_entries_key and log_keys_pkey. One statement, so that a key is found in one of them at least; an entry below
 * the first offset waits to be dropped.
 */
const logFind = {
  name: 'tm_log_find',
  text: `select e."offset", e.key, encode(e.digest, 'hex'), encode(e.chain, 'hex'),
                extract(epoch from e.appended_at) * 1000,
                case when e."offset" >= s.first_offset then e.payload end, s.name
           from tallyman.log_entries e join tallyman.log_streams s on s.id = e.stream where e.key_hash = $1
         union all
         select k."offset", null, replace(k.digest::text, '-', ''), null, null, null, s.name
           from tallyman.log_keys k join tallyman.log_streams s on s.id = k.stream where k.key_hash = $1`,
};

export async function byKeyHash(database: Database, keyHash: string): Promise<FoundKey | undefined> {
  const rows = await database.run(logFind, [keyHash]);
  // While an entry is being trimmed its key is in both tables.
  const kept = rows.find((row) => row[5] !== null);
  const row = kept ?? rows[0];
  return (
    row && {
      stream: row[6] ?? '',
      offset: Number(row[0]),
      digest: row[2] ?? '',
      entry: kept && toEntry(kept),
    }
  );
}

const infoColumns = `tenant_id as "tenantId", name, key_space as "keySpace", epoch, encode(chain, 'hex') as chain,
  first_offset::float8 as first, (next_offset - 1)::float8 as last, bytes::float8 as bytes,
  nullif(appended_at, '-infinity') as "appendedAt"`;

interface InfoRow extends Omit<StreamInfo, 'appendedAt'> {
  readonly appendedAt: Date | null;
}

export async function streamInfo(
  database: Database,
  { tenantId, name }: ResolvedStream,
): Promise<StreamInfo | undefined> {
  const { rows } = await database.query<InfoRow>(
    `select ${infoColumns} from tallyman.log_streams where tenant_id = $1 and name = $2 and deleted_at is null`,
    [tenantId, name],
  );
  return rows[0] && toInfo(rows[0]);
}

/** Relies on log_streams_name. */
export async function streamInfos(
  database: Database,
  { tenantId, after, limit }: { readonly tenantId: string; readonly after: string; readonly limit: number },
): Promise<StreamInfo[]> {
  const { rows } = await database.query<InfoRow>(
    `select ${infoColumns} from tallyman.log_streams
      where tenant_id = $1 and name > $2 and deleted_at is null order by name limit $3`,
    [tenantId, after, limit],
  );
  return rows.map(toInfo);
}

export async function streamId(
  database: Database,
  { tenantId, name }: ResolvedStream,
): Promise<number | undefined> {
  const { rows } = await database.query<{ id: number }>(
    'select id from tallyman.log_streams where tenant_id = $1 and name = $2 and deleted_at is null',
    [tenantId, name],
  );
  return rows[0]?.id;
}

const toInfo = ({ appendedAt, ...info }: InfoRow): StreamInfo => ({
  ...info,
  appendedAt: appendedAt ?? undefined,
});

function toEntry([offset, key, digest, chain, appendedAt, payload]: Row): LogEntry {
  const text = payload ?? 'null';
  return {
    offset: Number(offset),
    key: key ?? '',
    digest: digest ?? '',
    chain: chain ?? '',
    appendedAt: new Date(Number(appendedAt)),
    payload: JSON.parse(text),
    text,
  };
}
