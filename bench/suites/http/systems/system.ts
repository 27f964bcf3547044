export interface Surroundings {
  /** An empty database. */
  readonly databaseUrl: string;
  readonly tenants: number;
  readonly jobsPerRequest: number;
  /** Of the callers' keys; `producer` when absent. */
  readonly role?: 'admin';
  /** The other checkout; with `tallyman-before` only. */
  readonly baseline: string | undefined;
}

/** A server that runs in a process of its own. */
export interface RunningSystem {
  readonly url: string;
  /** Headers to send, one set for each tenant. */
  readonly callers: readonly Readonly<Record<string, string>>[];
  /** How many jobs are durable. */
  readonly count: () => Promise<number>;
  stop(): Promise<void>;
}
