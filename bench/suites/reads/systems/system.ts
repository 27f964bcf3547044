import type { Database } from '../../../../src/engine/database/database.ts';
import type { Size } from '../workloads.ts';

export interface System {
  readonly connections: number;
  /** Whether it writes what can be verified. Default true. */
  readonly counts?: boolean;
  /** What is not measured: rows to copy, caches to fill, brokers to start. */
  prepare?(database: Database, size: Size, url: string): Promise<void>;
  /** Takes in all reads of the stream. */
  run(database: Database, size: Size, halfway: () => void): Promise<void>;
  /** Ends what `prepare` started. */
  finish?(): Promise<void>;
}
