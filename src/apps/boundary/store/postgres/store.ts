import type { Database } from '../../../../engine/database/database.ts';
import { NodeStore } from '../node-store.ts';
import { PostgresLog } from './log.ts';

/** Everything in one database. */
export class PostgresFactStore extends NodeStore {
  constructor(database: Database) {
    super(database, new PostgresLog(database));
  }
}
