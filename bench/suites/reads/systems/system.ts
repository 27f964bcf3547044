import type { Database } from '../../../../src/engine/database/database.ts';
import type { Size } from '../workloads.ts';

export interface System {
  readonly connections: number;
  /** What is not measured: rows to copy, caches to fill. */
  prepare?(database: Database, size: Size): Promise<void>;
  /** Takes in all reads of the stream. */
  run(database: Database, size: Size, halfway: () => void): Promise<void>;
}
