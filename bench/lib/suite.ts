/** One figure of a run: the median over its repetitions. `--json` writes an array of these. */
export interface Row {
  readonly workload: string;
  readonly system: string;
  readonly value: number;
  readonly unit: string;
  readonly min: number;
  readonly max: number;
  /** The value of each repetition, in the order they ran. */
  readonly runs: readonly number[];
  /** What a suite wants to add: percentiles, how many jobs, the settings. */
  readonly [extra: string]: unknown;
}

export interface SuiteOptions {
  readonly quick: boolean;
  readonly repetitions: number;
  /** Workloads to run; all when absent. */
  readonly only: readonly string[] | undefined;
  /** Systems to run; all when absent. */
  readonly systems: readonly string[] | undefined;
  /** Another checkout of this repository, whose engine runs beside this one's; absolute. */
  readonly baseline: string | undefined;
  /** Called with one line as each measurement ends. */
  readonly progress: (line: string) => void;
}

export interface SuiteResult {
  readonly rows: readonly Row[];
  /** The tables as they are to be printed, one a workload. */
  readonly tables: readonly string[];
  /** What went wrong, one sentence each. Any entry makes the command exit with 1. */
  readonly failures: readonly string[];
}

/** A folder under `suites/` exports one of these as `suite` from its `suite.ts`. */
export interface Suite {
  readonly name: string;
  readonly summary: string;
  readonly workloads: readonly { readonly name: string; readonly summary: string }[];
  readonly systems: readonly { readonly name: string; readonly summary: string }[];
  /** Systems that exist only with `--baseline`; a suite without them refuses the option. */
  readonly baselineSystems?: readonly { readonly name: string; readonly summary: string }[];
  run(options: SuiteOptions): Promise<SuiteResult>;
}
