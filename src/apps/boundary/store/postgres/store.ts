import type { Database } from '../../../../engine/database/database.ts';
import { NodeStore, type NodeStoreOptions } from '../node-store.ts';
import { PostgresLog } from './log.ts';

/** Everything in one database. */
export class PostgresFactStore extends NodeStore {
  constructor(database: Database, options?: NodeStoreOptions) {
    super(database, new PostgresLog(database), options);
  }
}
