import type { TenantQueries } from '../../../host/timeline.ts';
import type { BrokenLink } from './report.ts';
import { aggregateChecks, type Columns, type RowCheck, singleChecks } from './row-checks.ts';

/** The first row that is not what its audit events say, with the column. Set by set, in SQL. */
export async function brokenRow(on: TenantQueries): Promise<BrokenLink | null> {
  for (const check of aggregateChecks) {
    const broken = await first(on, check.table, aggregateSql(check));
    if (broken) return broken;
  }
  for (const { table, sql, columns } of singleChecks) {
    const broken = await first(on, table, `${sql} ${comparison(columns)}`);
    if (broken) return broken;
  }
  return null;
}

async function first(on: TenantQueries, table: string, sql: string): Promise<BrokenLink | null> {
  const { rows } = await on.query<{ id: string; name: string; is: string | null; was: string | null }>(sql, [
    on.tenantId,
  ]);
  const [row] = rows;
  if (!row) return null;
  const at = `${table} ${row.id} (${row.name})`;
  if (row.name !== 'row')
    return { at, message: `it says ${short(row.is)}, its audit trail ${short(row.was)}` };
  return {
    at,
    message:
      row.is === 'true' ? 'the row has no audit event' : 'the row was deleted; its audit events are there',
  };
}

const short = (text: string | null): string =>
  text === null ? 'nothing' : `"${text.length > 80 ? `${text.slice(0, 80)}…` : text}"`;

/** `e`: the last event of each type with its time; `last`: the type that gives the state; `newest`: the last type of all. */
const aggregateSql = ({ aggregate, table, key, states = {}, where = 'true', columns }: RowCheck): string => `
  with ev as (
    select a.aggregate_id as id, min(a.at) as since,
           jsonb_object_agg(a.type, a.data::jsonb || jsonb_build_object('at', a.at) order by a.seq) as e,
           (array_agg(a.type order by a.seq desc))[1] as newest,
           (array_agg(a.type order by a.seq desc) filter (where a.type = any (array[${list(Object.keys(states))}]::text[])))[1] as last
      from passports.audit_events a where a.tenant_id = $1 and a.aggregate_type = '${aggregate}' group by 1)
  select coalesce(${key}, ev.id) as id, c.name, c."is", c.was
    from (select * from passports.${table} t where t.tenant_id = $1) r
    full join (select * from ev where ${where}) ev on ev.id = ${key}
    ${comparison({
      row: [`(${key} is not null)::text`, '(ev.id is not null)::text'],
      ...(Object.keys(states).length > 0 && { state: [`r.state`, stateCase(states)] }),
      ...columns,
    })}`;

const stateCase = (states: Readonly<Record<string, string>>): string =>
  `case ev.last ${Object.entries(states)
    .map(([event, state]) => `when '${event}' then '${state}'`)
    .join(' ')} end`;

const comparison = (columns: Columns): string => `
  cross join lateral (values ${Object.entries(columns)
    .map(([name, [is, was]], at) => `(${at}, '${name}', ${is}, ${was})`)
    .join(',\n    ')}) as c (n, name, "is", was)
  where c."is" is distinct from c.was order by 1, c.n limit 1`;

const list = (texts: readonly string[]): string => texts.map((text) => `'${text}'`).join(', ');
