import { join } from 'node:path';
import { measureInChild } from '../../lib/child.ts';
import { median, readable, table } from '../../lib/figures.ts';
import { describePostgres, type PostgresServer, startPostgres, usingDatabase } from '../../lib/postgres.ts';
import { repeat } from '../../lib/repeat.ts';
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
    for (const { name } of workloads) {
      const measured = await measure(name, server, options);
      rows.push(...measured.rows);
      failures.push(...measured.failures);
    }
    return {
      rows,
      tables: [...workloads.map(({ name }) => tableOf(name, rows)), facts.join('\n')],
      failures,
    };
  } finally {
    await server.stop();
  }
}

function measure(workload: Workload, server: PostgresServer, options: SuiteOptions) {
  const labels = labelsOf(workload, options.quick);
  const systems = SYSTEMS.map(({ name }) => name).filter((name) => options.systems?.includes(name) ?? true);
  return repeat<Measured>(
    {
      workload,
      systems,
      unit: 'changes/s',
      once: (system) => measureOnce(system as SystemName, labels, server),
      aside: ({ node }) => `${readable(node)} µs Node a change`,
      extra: (_, runs) => ({ labels, node: median(runs.map(({ node }) => node)) }),
    },
    options,
  );
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
