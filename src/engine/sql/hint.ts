import type { Database, Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const hintFunction = new SqlFunction('hint', {
  queues: 'text[]',
});

/** Tells workers of other processes that these queues may have work. */
export async function hint(on: Queryable, args: ArgumentsOf<typeof hintFunction>): Promise<void> {
  await hintFunction.rows(on, args);
}

/** The same, not waiting for the disk: a hint that is lost costs one poll interval. */
export async function hintSoon(
  database: Pick<Database, 'run'>,
  args: ArgumentsOf<typeof hintFunction>,
): Promise<void> {
  await database.run(hintSoonStatement, hintFunction.values(args));
}

const hintSoonStatement = {
  name: hintFunction.statement.name,
  text: `${hintFunction.statement.text}, set_config('synchronous_commit', 'off', true)`,
};
