import type { Queryable } from '../database/database.ts';
import { SqlFunction } from './sql-function.ts';

export const checkFunction = new SqlFunction('check', {}, { columns: ['problem', 'id', 'detail'] });

/** Work that can never move, or rows that contradict each other: a bug, or a change of the tables by hand. */
export interface Problem {
  readonly problem: string;
  /** Of the job, lane, claim or stream. */
  readonly id: string;
  readonly detail: string;
}

export const check = (on: Queryable): Promise<Problem[]> => checkFunction.rows(on, {});
