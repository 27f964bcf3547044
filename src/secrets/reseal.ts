import type { Database, Queryable } from '../engine/database/database.ts';
import { TallymanError } from '../engine/errors.ts';
import type { SecretBox } from './box.ts';

/** A column that holds sealed secrets, so that they can be sealed anew under another master secret. */
export interface SealedColumn {
  readonly table: string;
  /** The primary key. */
  readonly keys: readonly string[];
  readonly column: string;
  /** The context that a row's secret is sealed with; the row has the columns of `keys` and `also`, as text. */
  readonly context: (row: Readonly<Record<string, string>>) => string;
  readonly also?: readonly string[];
}

const atOnce = 200;

/** Rows that are sealed, and not under the current master secret. */
const others = (column: string): string => `${column} ~ '^v[12][.]' and ${column} not like $1`;
const currentOf = (box: SecretBox): string => `v2.${box.keyId}.%`;

export async function countOthers(
  on: Queryable,
  box: SecretBox,
  { table, column }: SealedColumn,
): Promise<number> {
  const { rows } = await on.query<{ n: number }>(
    `select count(*)::integer as n from ${table} where ${others(column)}`,
    [currentOf(box)],
  );
  return rows[0]?.n ?? 0;
}

/**
 * Seals every secret of a column under the current master secret, a few hundred rows a transaction. Servers may run meanwhile: they
 * open both. Returns how many there were. Where it is killed, the rest is done by the next call.
 */
export async function reseal(
  database: Database,
  box: SecretBox,
  column: SealedColumn,
  onProgress: (resealed: number) => void = () => {},
): Promise<number> {
  if (box.keyIds.length < 2)
    throw new TallymanError(
      'BAD_STATE',
      'there is one master secret, so there is nothing to seal anew: give the old one as secrets.otherKeys (TALLYMAN_OTHER_SECRET_KEYS)',
    );
  let resealed = 0;
  for (;;) {
    const rows = await database.transaction((tx) => resealSome(tx, box, column));
    resealed += rows;
    if (rows === 0) return resealed;
    onProgress(resealed);
  }
}

async function resealSome(tx: Queryable, box: SecretBox, sealed: SealedColumn): Promise<number> {
  const { table, keys, column, context, also = [] } = sealed;
  const names = [...new Set([...keys, ...also])];
  const { rows } = await tx.query<Record<string, string>>(
    `select ${names.map((name) => `${name}::text as ${name}`).join(', ')}, ${column} as sealed from ${table}
      where ${others(column)} order by ${keys.join(', ')} limit ${atOnce} for no key update`,
    [currentOf(box)],
  );
  for (const { sealed: text = '', ...row } of rows) {
    const anew = box.seal(box.open(text, context(row)), context(row));
    await tx.query(
      `update ${table} set ${column} = $1 where ${keys.map((key, i) => `${key} = $${i + 2}`).join(' and ')}`,
      [anew, ...keys.map((key) => row[key])],
    );
  }
  return rows.length;
}
