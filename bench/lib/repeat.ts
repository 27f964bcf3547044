import { median, readable } from './figures.ts';
import type { Row, SuiteOptions } from './suite.ts';

export interface Repeated<Measured> {
  readonly workload: string;
  readonly systems: readonly string[];
  readonly unit: string;
  readonly once: (system: string) => Promise<Measured>;
  /** What stands behind a figure as it is told. */
  readonly aside: (measured: Measured) => string;
  /** What a row has beside the value. */
  readonly extra: (system: string, runs: readonly Measured[]) => Readonly<Record<string, unknown>>;
}

/**
 * A B C, A B C, A B C: a slow minute of the machine hits all systems and not one. A system that failed once has no
 * row.
 */
export async function repeat<Measured extends { readonly value: number }>(
  { workload, systems, unit, once, aside, extra }: Repeated<Measured>,
  options: SuiteOptions,
): Promise<{ readonly rows: readonly Row[]; readonly failures: readonly string[] }> {
  const cells = systems.map((system) => ({ system, runs: [] as Measured[] }));
  const failures: string[] = [];
  for (let repetition = 1; repetition <= options.repetitions; repetition += 1)
    for (const { system, runs } of cells) {
      const label = `${workload.padEnd(18)}${system.padEnd(17)}${repetition}/${options.repetitions}`;
      try {
        const measured = await once(system);
        runs.push(measured);
        options.progress(`${label}  ${readable(measured.value).padStart(9)} ${unit}  (${aside(measured)})`);
      } catch (error) {
        failures.push(`${workload}, ${system}, repetition ${repetition}: ${(error as Error).message}`);
        options.progress(`${label}  FAILED: ${(error as Error).message}`);
      }
    }
  const complete = cells.filter(({ runs }) => runs.length === options.repetitions);
  return { rows: complete.map(({ system, runs }) => rowOf(system, runs)), failures };

  function rowOf(system: string, runs: readonly Measured[]): Row {
    const values = runs.map(({ value }) => value);
    return {
      workload,
      system,
      value: median(values),
      unit,
      min: Math.min(...values),
      max: Math.max(...values),
      runs: values,
      ...extra(system, runs),
    };
  }
}
