import { join } from 'node:path';
import { measureInChild } from '../../lib/child.ts';
import { median, readable, table } from '../../lib/figures.ts';
import { describePostgres, type PostgresServer, startPostgres, usingDatabase } from '../../lib/postgres.ts';
import { repeat } from '../../lib/repeat.ts';
import type { Row, SuiteOptions, SuiteResult } from '../../lib/suite.ts';
import type { Measured, Task } from './measurer.ts';
import { SYSTEMS, type SystemName } from './systems/names.ts';
import { sizeOf, WORKLOADS, type Workload } from './workloads.ts';

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
      tables: [...workloads.map(({ name }) => tableOf(name, rows)), growth(rows), facts.join('\n')].filter(
        (text) => text !== '',
      ),
      failures,
    };
  } finally {
    await server.stop();
  }
}

function measure(workload: Workload, server: PostgresServer, options: SuiteOptions) {
  const size = sizeOf(workload, options.quick);
  const systems = SYSTEMS.map(({ name }) => name).filter((name) => options.systems?.includes(name) ?? true);
  return repeat<Measured>(
    {
      workload,
      systems,
      unit: 'passports/s',
      once: (system) =>
        usingDatabase(server, (url) =>
          measureInChild<Task, Measured>(
            join(import.meta.dirname, 'measurer.ts'),
            { system: system as SystemName, url, ...size },
            RUN_TIMEOUT,
          ),
        ),
      aside: ({ node }) => `${readable(node)} µs Node a passport`,
      extra: (_, runs) => ({ ...size, node: median(runs.map(({ node }) => node)) }),
    },
    options,
  );
}

function tableOf(workload: Workload, rows: readonly Row[]): string {
  const body = rows
    .filter((row) => row.workload === workload)
    .map((row) => [
      row.system,
      readable(row.value),
      `${readable(row.min)}–${readable(row.max)}`,
      readable(row.node as number),
    ]);
  const summary = WORKLOADS.find(({ name }) => name === workload)?.summary ?? '';
  return `${summary}\n${table([workload, 'passports/s', 'min–max', 'µs Node'], body)}`;
}

/** Ten times the facts: at most ten times the time. */
function growth(rows: readonly Row[]): string {
  const of = (workload: string, system: string) =>
    rows.find((row) => row.workload === workload && row.system === system)?.value;
  const body = ['items', 'full'].flatMap((workload) =>
    ['tallyman', 'compile'].flatMap((system) => {
      const [small, large] = [of(workload, system), of(`${workload}-10x`, system)];
      return small && large ? [[`${workload}, ${system}`, `${(small / large).toFixed(1)}×`]] : [];
    }),
  );
  return body.length === 0 ? '' : table(['time a passport with 10× the facts', ''], body);
}
