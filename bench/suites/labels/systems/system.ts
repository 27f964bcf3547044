export interface Surroundings {
  /** An empty database. */
  readonly url: string;
  /** The simulated gateway, in a process of its own. */
  readonly simulator: string;
  readonly labels: number;
}

export interface OpenSystem {
  /** What is measured. */
  run(): Promise<void>;
  /** Throws unless everything that should have happened has. */
  verify(): Promise<void>;
  close(): Promise<void>;
}

export interface System {
  open(surroundings: Surroundings): Promise<OpenSystem>;
}
