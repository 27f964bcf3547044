import { join } from 'node:path';
import { measureInChild } from '../../lib/child.ts';
import { median, readable, table } from '../../lib/figures.ts';
import { describePostgres, type PostgresServer, startPostgres, usingDatabase } from '../../lib/postgres.ts';
import type { Row, SuiteOptions, SuiteResult } from '../../lib/suite.ts';
import type { Measured, Task } from './measurer.ts';
import { startSimulator } from './simulator.ts';
import { SYSTEMS, type SystemName } from './systems/names.ts';
import { labelsOf, WORKLOADS, type Workload } from './workloads.ts';

const RUN_TIMEOUT = 900_000;

export async function run(options: SuiteOptions): Promise<SuiteResult> {
  const workloads = WORKLOADS.filter(({ name }) => options.only?.includes(name) ?? true);
  const server = await startPostgres();
  try {
    const facts = [
      `Server: ${await describePostgres(server)}`,
      `Medians of ${options.repetitions}, repetitions interleaved, each run in a process and a database of its own`,
    ];
    for (const fact of facts) options.progress(fact);
    const rows: Row[] = [];
    const failures: string[] = [];
    for (const { name } of workloads) await measure(name, server, options, rows, failures);
    return {
      rows,
      tables: [...workloads.map(({ name }) => tableOf(name, rows)), facts.join('\n')],
      failures,
    };
  } finally {
    await server.stop();
  }
}

async function measure(
  workload: Workload,
  server: PostgresServer,
  options: SuiteOptions,
  rows: Row[],
  failures: string[],
): Promise<void> {
  const labels = labelsOf(workload, options.quick);
  const cells = SYSTEMS.filter(({ name }) => options.systems?.includes(name) ?? true).map(({ name }) => ({
    name,
    runs: [] as Measured[],
  }));
  for (let repetition = 1; repetition <= options.repetitions; repetition += 1)
    for (const { name, runs } of cells) {
      const label = `${workload.padEnd(12)}${name.padEnd(10)}${repetition}/${options.repetitions}`;
      try {
        const measured = await measureOnce(name, labels, server);
        runs.push(measured);
        options.progress(
          `${label}  ${readable(measured.value).padStart(9)} changes/s  (${readable(measured.node)} µs Node a change)`,
        );
      } catch (error) {
        failures.push(`${workload}, ${name}, repetition ${repetition}: ${(error as Error).message}`);
        options.progress(`${label}  FAILED: ${(error as Error).message}`);
      }
    }
  for (const { name, runs } of cells) {
    if (runs.length < options.repetitions) continue;
    const values = runs.map(({ value }) => value);
    rows.push({
      workload,
      system: name,
      value: median(values),
      unit: 'changes/s',
      min: Math.min(...values),
      max: Math.max(...values),
      runs: values,
      labels,
      node: median(runs.map(({ node }) => node)),
    });
  }
}

async function measureOnce(system: SystemName, labels: number, server: PostgresServer): Promise<Measured> {
  const simulator = await startSimulator();
  try {
    return await usingDatabase(server, (url) =>
      measureInChild<Task, Measured>(
        join(import.meta.dirname, 'measurer.ts'),
        { system, labels, url, simulator: simulator.url },
        RUN_TIMEOUT,
      ),
    );
  } finally {
    await simulator.stop();
  }
}

function tableOf(workload: Workload, rows: readonly Row[]): string {
  const own = rows.filter((row) => row.workload === workload);
  const ours = own.find((row) => row.system === 'tallyman')?.value;
  const body = own.map((row) => [
    row.system,
    readable(row.value),
    `${readable(row.min)}–${readable(row.max)}`,
    ours === undefined ? '–' : `${(ours / row.value).toFixed(2)}×`,
    readable(row.node as number),
  ]);
  const summary = WORKLOADS.find(({ name }) => name === workload)?.summary ?? '';
  return `${summary}\n${table([workload, 'changes/s', 'min–max', 'tallyman is', 'µs Node'], body)}`;
}
