import { join } from 'node:path';
import { measureInChild } from '../../lib/child.ts';
import { median, readable, table } from '../../lib/figures.ts';
import { natsProgram } from '../../lib/nats.ts';
import { describePostgres, type PostgresServer, startPostgres, usingDatabase } from '../../lib/postgres.ts';
import { execute } from '../../lib/processes.ts';
import { repeat } from '../../lib/repeat.ts';
import type { Row, SuiteOptions, SuiteResult } from '../../lib/suite.ts';
import type { Measured, Task } from './measurer.ts';
import { SYSTEMS, type SystemName } from './systems/names.ts';
import { sizeOf, WORKLOADS, type Workload } from './workloads.ts';

const RUN_TIMEOUT = 300_000;

export async function run(options: SuiteOptions): Promise<SuiteResult> {
  const workloads = WORKLOADS.filter(({ name }) => options.only?.includes(name) ?? true);
  const server = await startPostgres();
  try {
    const nats = (await execute(await natsProgram(), ['--version'])).trim();
    const facts = [
      `Servers: ${await describePostgres(server)}; ${nats}`,
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

/** What was trimmed before is our own matter: the others have nothing that is trimmed and still known. */
const contenders = (workload: Workload, { systems }: SuiteOptions): SystemName[] =>
  SYSTEMS.map(({ name }) => name).filter(
    (name) =>
      (systems?.includes(name) ?? true) && (!workload.endsWith('trimmed') || name.startsWith('tallyman')),
  );

const measure = (workload: Workload, server: PostgresServer, options: SuiteOptions) =>
  repeat<Measured>(
    {
      workload,
      systems: contenders(workload, options),
      unit: 'facts/s',
      once: (system) =>
        usingDatabase(server, (url) =>
          measureInChild<Task, Measured>(
            join(import.meta.dirname, 'measurer.ts'),
            { system: system as SystemName, size: sizeOf(workload, options.quick), url },
            RUN_TIMEOUT,
          ),
        ),
      aside: ({ p50, p99 }) => `p50 ${readable(p50)} ms, p99 ${readable(p99)} ms`,
      extra: (_, runs) => ({
        p50: median(runs.map(({ p50 }) => p50)),
        p99: median(runs.map(({ p99 }) => p99)),
      }),
    },
    options,
  );

function tableOf(workload: Workload, rows: readonly Row[]): string {
  const own = rows.filter((row) => row.workload === workload);
  const ours = own.find((row) => row.system === 'tallyman')?.value;
  const flush = own.find((row) => row.system === 'file')?.p50 as number | undefined;
  const ratio = (a: number | undefined, b: number | undefined) =>
    a === undefined || b === undefined ? '–' : `${(a / b).toFixed(2)}×`;
  const body = own.map((row) => [
    row.system,
    readable(row.value),
    `${readable(row.min)}–${readable(row.max)}`,
    ratio(ours, row.value),
    readable(row.p50 as number),
    readable(row.p99 as number),
    ratio(row.p50 as number, flush),
  ]);
  const summary = WORKLOADS.find(({ name }) => name === workload)?.summary ?? '';
  const head = [workload, 'facts/s', 'min–max', 'tallyman is', 'p50 ms', 'p99 ms', 'p50 in flushes'];
  return `${summary}\n${table(head, body)}`;
}
