import type { Queryable } from '../../engine/database/database.ts';
import type { Transactor } from '../../engine/locks/exclusive.ts';

/** A database, or what stands for it: the API hands over one that sees a single tenant. */
export type Store = Queryable & Transactor;
