import type { Size } from '../workloads.ts';

export interface Surroundings extends Size {
  /** An empty database. */
  readonly url: string;
}

export interface OpenSystem {
  /** What is measured. Returns the processor time of its other processes in µs. */
  run(): Promise<number>;
  /** Throws unless everything that should have happened has. */
  verify(): Promise<void>;
  close(): Promise<void>;
}

export interface System {
  open(surroundings: Surroundings): Promise<OpenSystem>;
}
