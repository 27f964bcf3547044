/**
 * The table that is replayed: ours, or another system's on any server. It is only read.
 *
 * Which transactions may still commit below the newest row: for a table on a primary server, exactly those that hold a
 * writer's lock on it, because an INSERT takes the lock before it draws an id. On a standby and behind a view locks are no
 * help; there it is every running transaction, plus a grace period for those too young to be listed.
 */
import type { Queryable } from '../../../engine/database/database.ts';
import { TallymanError } from '../../../engine/errors.ts';
import { type Horizon, isAfter } from './position.ts';

export interface TagReadTable {
  /** `schema.table`, each part as the catalogue spells it. Default `iot.tag_reads`. */
  readonly table?: string;
  readonly columns?: {
    readonly id?: string;
    readonly deviceId?: string;
    readonly epc?: string;
    readonly eventTimestamp?: string;
    /** Null: the table has none, and all of it belongs to `tenantId`. */
    readonly tenantId?: string | null;
  };
  /** For tables without a column for it. Default `default`. */
  readonly tenantId?: string;
  /**
   * How long after the newest row a row may still appear below it, for writers that draw ids ahead of their transactions
   * (sequences with a cache, ids given out in blocks, logical replication). Default 0; on a standby or behind a view 60,000.
   */
  readonly graceMs?: number;
}

export interface SourceRow {
  readonly id: string;
  readonly deviceId: string;
  readonly epc: string;
  readonly eventTimestamp: string;
  readonly tenantId: string;
}

export interface SourceDevice {
  readonly tenantId: string;
  readonly deviceId: string;
}

export interface Selection {
  readonly device?: SourceDevice | { readonly deviceId: string } | undefined;
  /** ISO 8601, by the time of the event; from is included, to is not. */
  readonly fromTime?: string | undefined;
  readonly toTime?: string | undefined;
}

interface Described {
  readonly id: string;
  readonly device: string;
  readonly epc: string;
  readonly time: string;
  readonly tenant: string | null;
  readonly locksTell: boolean;
  readonly oid: string;
}

const unknownWritersGraceMs = 60_000;

export class TagReadSource {
  readonly name: string;
  readonly #on: Queryable;
  readonly #options: TagReadTable;
  readonly #table: string;
  #described: Promise<Described> | undefined;

  /** `on` may be any server; it only gets SELECT statements. */
  constructor(on: Queryable, options: TagReadTable = {}) {
    this.#on = on;
    this.#options = options;
    this.name = options.table ?? 'iot.tag_reads';
    const parts = this.name.split('.');
    if (parts.length > 2)
      throw new TallymanError('BAD_OPTION', `table must be "schema.table" or "table", got "${this.name}"`);
    this.#table = parts.map((part) => quoted(part, 'table')).join('.');
    const { graceMs } = options;
    if (graceMs !== undefined && !(graceMs >= 0))
      throw new TallymanError('BAD_OPTION', `graceMs must be 0 or more, got ${graceMs}`);
    for (const column of Object.values(options.columns ?? {})) if (column !== null) quoted(column, 'column');
  }

  /** One statement: it reads the locks after its snapshot, so a writer that drew a smaller id is listed or has ended. */
  async look(): Promise<Horizon> {
    const { id, locksTell, oid } = await this.#describe();
    const { rows } = await this.#on.query<{ id: string; writers: string[]; xmax: string; at: string }>(
      `select coalesce((select max(${id}) from ${this.#table}), 0)::text as id,
              ${writers} as writers,
              pg_snapshot_xmax(pg_current_snapshot())::text as xmax,
              floor(extract(epoch from clock_timestamp()) * 1000)::text as at`,
      [oid],
    );
    const row = one(rows);
    return { id: row.id, writers: row.writers, xmax: locksTell ? null : row.xmax, at: Number(row.at) };
  }

  /** True when nothing can appear any more at or below the horizon. */
  async isSettled(horizon: Horizon): Promise<boolean> {
    const graceMs = this.#options.graceMs ?? (horizon.xmax === null ? 0 : unknownWritersGraceMs);
    if (graceMs === 0 && horizon.writers.length === 0) return true;
    const { oid } = await this.#describe();
    const { rows } = await this.#on.query<{ writers: string[]; xmin: string; at: string }>(
      `select ${writers} as writers, pg_snapshot_xmin(pg_current_snapshot())::text as xmin,
              floor(extract(epoch from clock_timestamp()) * 1000)::text as at`,
      [oid],
    );
    const now = one(rows);
    if (Number(now.at) - horizon.at < graceMs) return false;
    if (horizon.xmax !== null) return BigInt(now.xmin) >= BigInt(horizon.xmax);
    const writing = new Set(now.writers);
    return !horizon.writers.some((writer) => writing.has(writer));
  }

  /**
   * In the order of ids. Relies on the table's primary key. The upper end is not part of the condition: with it, PostgreSQL
   * would sort a table that was never analysed as a whole for each batch.
   */
  async read(after: string, upTo: string, limit: number, selection: Selection = {}): Promise<SourceRow[]> {
    const { id, device, epc, time } = await this.#describe();
    const { where, values } = await this.#where(after, null, selection);
    const tenant = await this.#tenant(values);
    // Qualify the column: `id` alone would refer to the text in the select list.
    const { rows } = await this.#on.query<SourceRow>(
      `select ${id}::text as "id", coalesce(${device}::text, '') as "deviceId", coalesce(${epc}::text, '') as "epc",
              coalesce(to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), '') as "eventTimestamp",
              ${tenant} as "tenantId"
         from ${this.#table} as source where ${where}
        order by source.${id} limit $${values.push(limit)}`,
      values,
    );
    return rows.filter((row) => !isAfter(row.id, upTo));
  }

  async count(after: string, upTo: string, selection: Selection = {}): Promise<number> {
    const { where, values } = await this.#where(after, upTo, selection);
    const { rows } = await this.#on.query<{ n: string }>(
      `select count(*) as n from ${this.#table} where ${where}`,
      values,
    );
    return Number(one(rows).n);
  }

  /** The devices that have rows in this range. */
  async devices(after: string, upTo: string): Promise<SourceDevice[]> {
    const { device } = await this.#describe();
    const { where, values } = await this.#where(after, upTo, {});
    const tenant = await this.#tenant(values);
    const { rows } = await this.#on.query<SourceDevice>(
      `select distinct ${tenant} as "tenantId", coalesce(${device}::text, '') as "deviceId"
         from ${this.#table} where ${where} order by 1, 2`,
      values,
    );
    return rows;
  }

  async #where(
    after: string,
    upTo: string | null,
    { device, fromTime, toTime }: Selection,
  ): Promise<{ where: string; values: unknown[] }> {
    const columns = await this.#describe();
    const values: unknown[] = [after];
    const parts = [`${columns.id} > $1::bigint`];
    if (upTo !== null) parts.push(`${columns.id} <= $${values.push(upTo)}::bigint`);
    if (device) {
      parts.push(`coalesce(${columns.device}::text, '') = $${values.push(device.deviceId)}`);
      if ('tenantId' in device && columns.tenant !== null)
        parts.push(`coalesce(${columns.tenant}::text, '') = $${values.push(device.tenantId)}`);
    }
    if (fromTime !== undefined) parts.push(`${columns.time} >= $${values.push(fromTime)}::timestamptz`);
    if (toTime !== undefined) parts.push(`${columns.time} < $${values.push(toTime)}::timestamptz`);
    return { where: parts.join(' and '), values };
  }

  async #tenant(values: unknown[]): Promise<string> {
    const { tenant } = await this.#describe();
    return tenant === null
      ? `$${values.push(this.#options.tenantId ?? 'default')}::text`
      : `coalesce(${tenant}::text, '')`;
  }

  #describe(): Promise<Described> {
    this.#described ??= this.#lookUp().catch((error: unknown) => {
      this.#described = undefined;
      throw error;
    });
    return this.#described;
  }

  async #lookUp(): Promise<Described> {
    const { rows } = await this.#on.query<{
      oid: string | null;
      isTable: boolean | null;
      standby: boolean;
      types: Record<string, string> | null;
    }>(
      `select c.oid::text as oid, c.relkind in ('r', 'p') as "isTable", pg_is_in_recovery() as standby,
              (select json_object_agg(a.attname, format_type(a.atttypid, null)) from pg_attribute a
                where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as types
         from (values (to_regclass($1))) as t (name) left join pg_class c on c.oid = t.name`,
      [this.#table],
    );
    const { oid, isTable, standby, types } = one(rows);
    if (oid === null || types === null)
      throw new TallymanError('NOT_FOUND', `there is no table ${this.name} to replay, or it may not be seen`);
    const { columns = {} } = this.#options;
    const column = (name: string): string => {
      if (types[name] === undefined)
        throw new TallymanError(
          'BAD_OPTION',
          `table ${this.name} has no column "${name}"; it has ${Object.keys(types).join(', ')}`,
        );
      return quoted(name, 'column');
    };
    const timeName = columns.eventTimestamp ?? 'event_timestamp';
    const time = column(timeName);
    return {
      id: column(columns.id ?? 'id'),
      device: column(columns.deviceId ?? 'device_id'),
      epc: column(columns.epc ?? 'epc_hex'),
      // A time without a zone is UTC, not the session's time zone.
      time: types[timeName] === 'timestamp without time zone' ? `(${time} at time zone 'UTC')` : time,
      tenant: columns.tenantId === null ? null : column(columns.tenantId ?? 'tenant_id'),
      locksTell: isTable === true && !standby,
      oid,
    };
  }
}

/** Transactions that hold a lock which lets them write to the table $1 or to a part of it. */
const writers = `array(
  with recursive part (oid) as (
    select $1::oid union select i.inhrelid from pg_inherits i join part p on i.inhparent = p.oid)
  select distinct l.virtualtransaction from pg_locks l
   where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
     and l.database = (select d.oid from pg_database d where d.datname = current_database())
     and l.relation in (select p.oid from part p)
     and l.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   order by 1)`;

/** Quotes an identifier for SQL; rejects what cannot be one. */
function quoted(name: string, what: string): string {
  if (name === '' || Buffer.byteLength(name) > 63 || name.includes('\0'))
    throw new TallymanError('BAD_OPTION', `"${name}" cannot be the name of a ${what}`);
  return `"${name.replaceAll('"', '""')}"`;
}

function one<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new TallymanError('NO_ANSWER', 'the source answered without a row');
  return row;
}
