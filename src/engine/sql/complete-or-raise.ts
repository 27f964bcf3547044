import pg from 'pg';
import type { PreparedStatement, Value } from '../database/hot-query.ts';
import { someAreGone } from './settle.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const completeOrRaiseFunction = new SqlFunction('complete_or_raise', {
  worker: 'text',
  claims: 'bigint[]',
  streams: 'integer[]',
  positions: 'bigint[]',
  lanes: 'bigint[]',
  seqs: 'bigint[]',
  keepMs: 'double precision',
  expected: 'integer',
});

/** Raised if a job could not be completed. `someAreGone` comes from the cheaper way, which only compares counts. */
export const notCompleted: ReadonlySet<string | undefined> = new Set([someAreGone, 'TM011']);

/** The call as a statement of a pipeline. */
export const completeOrRaise = (
  args: ArgumentsOf<typeof completeOrRaiseFunction>,
): PreparedStatement & { readonly values: readonly Value[] } => ({
  ...completeOrRaiseFunction.statement,
  values: completeOrRaiseFunction.values(args),
});

/** The call as a text that needs no values: it goes out together with the COMMIT. */
export function completeOrRaiseText(args: ArgumentsOf<typeof completeOrRaiseFunction>): string {
  const values = completeOrRaiseFunction.values(args);
  return completeOrRaiseFunction.statement.text.replace(/\$(\d+)/g, (_, n) => {
    const value = values[Number(n) - 1];
    return value === null || value === undefined ? 'null' : pg.escapeLiteral(String(value));
  });
}
