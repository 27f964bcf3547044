import type { Queryable } from '../../engine/database/database.ts';
import type { Transactor } from '../../engine/locks/exclusive.ts';

/** A database handle; the API passes one that sees a single tenant. */
export type Store = Queryable & Transactor;
