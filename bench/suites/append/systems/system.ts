import type { FactInput } from '../../../../src/apps/boundary/domain/fact.ts';
import type { Size } from '../workloads.ts';

export interface Surroundings {
  /** An empty database. */
  readonly url: string;
  readonly size: Size;
}

export interface RunningSystem {
  /** Resolves when the fact is durable. */
  append(fact: FactInput): Promise<unknown>;
  /** How many facts it holds, to compare with the answers that were given. */
  count(): Promise<number>;
  stop(): Promise<void>;
}

export type System = (surroundings: Surroundings) => Promise<RunningSystem>;
