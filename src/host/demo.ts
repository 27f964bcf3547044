/**
 * The interface of a demo. An app may have one: simulated devices on real parts, with books that tell whether everything was
 * counted. `npm start` runs the first one in the list of apps; it brings the database, a broker and the API.
 */
import type { Command } from 'commander';
import type { Worker } from '../engine/jobs/worker.ts';
import type { Logger } from '../engine/logger.ts';
import type { Tallyman } from '../engine/tallyman.ts';

export interface Demo<Options extends object = object> {
  /** For `npm start -- --help`. */
  readonly description: string;
  /** Adds its options. */
  options(command: Command): void;
  /** Runs until the host's signal fires, and settles the books. Closes what it has opened. */
  run(host: DemoHost, options: Options): Promise<DemoResult>;
}

export interface DemoHost {
  readonly tallyman: Tallyman;
  /** For processes of its own. */
  readonly databaseUrl: string;
  /** An MQTT broker. */
  readonly broker: { readonly url: string; readonly mostInFlight?: number };
  /** Where things run, as text without secrets. */
  readonly where: { readonly database: string; readonly broker: string; readonly api: string };
  readonly logger: Logger;
  /** The terminal's last line may be written anew. */
  readonly isTerminal: boolean;
  /** To be called when all is set up: the time of `--for` counts from here. */
  begin(): void;
  /** Fires when it is to end. */
  readonly signal: AbortSignal;
  /** Who ended it, such as `Ctrl-C`; undefined: its time is over. */
  stoppedBy(): string | undefined;
  /** Counts the metrics of a worker. */
  observe(worker: Worker): void;
}

export interface DemoResult {
  readonly summary: string;
  readonly balanced: boolean;
}
