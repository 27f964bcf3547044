import type { Value } from '../database/hot-query.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const renewFunction = new SqlFunction('renew', {
  worker: 'text',
  leaseMs: 'integer',
  staleMs: 'integer',
});

/** The call as a statement, for the heartbeat's own connection. Each row answers the token of a claim, as `answer`. */
export const renew = (
  args: ArgumentsOf<typeof renewFunction>,
): { readonly text: string; readonly values: readonly Value[] } => ({
  text: renewFunction.statement.text,
  values: renewFunction.values(args),
});
