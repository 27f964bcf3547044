import { join } from 'node:path';
import { measureInChild } from '../../lib/child.ts';
import { median, readable, table } from '../../lib/figures.ts';
import { describePostgres, type PostgresServer, startPostgres, usingDatabase } from '../../lib/postgres.ts';
import { repeat } from '../../lib/repeat.ts';
import type { Row, SuiteOptions, SuiteResult } from '../../lib/suite.ts';
import type { Measured, Task } from './generator.ts';
import { measureNeighbour, neighbourTable } from './neighbour/neighbour.ts';
import { NEIGHBOUR } from './neighbour/summary.ts';
import { startFastifyInsert } from './systems/fastify-insert.ts';
import { BASELINE_SYSTEMS, SYSTEMS, type SystemName } from './systems/names.ts';
import type { RunningSystem, Surroundings } from './systems/system.ts';
import { startTallyman } from './systems/tallyman.ts';
import { requestsOf, WORKLOADS, type Workload } from './workloads.ts';

const RUN_TIMEOUT = 300_000;

export async function run(options: SuiteOptions): Promise<SuiteResult> {
  const workloads = WORKLOADS.filter(({ name }) => options.only?.includes(name) ?? true);
  const server = await startPostgres();
  try {
    const facts = [
      `Server: ${await describePostgres(server)}`,
      `Medians of ${options.repetitions}, repetitions interleaved; API, load generator and database share the machine`,
    ];
    for (const fact of facts) options.progress(fact);
    const rows: Row[] = [];
    const failures: string[] = [];
    for (const workload of workloads) {
      const measured = await measure(workload, server, options);
      rows.push(...measured.rows);
      failures.push(...measured.failures);
    }
    const isChosen = options.only?.includes(NEIGHBOUR.name) ?? true;
    if (isChosen) {
      const measured = await measureNeighbour(server, options);
      rows.push(...measured.rows);
      failures.push(...measured.failures);
    }
    return {
      rows,
      tables: [
        ...workloads.map((workload) => tableOf(workload, rows)),
        ...(isChosen ? [neighbourTable(rows)] : []),
        facts.join('\n'),
      ],
      failures,
    };
  } finally {
    await server.stop();
  }
}

function measure(workload: Workload, server: PostgresServer, options: SuiteOptions) {
  const systems = [...SYSTEMS, ...(options.baseline === undefined ? [] : BASELINE_SYSTEMS)]
    .map(({ name }) => name)
    .filter((name) => options.systems?.includes(name) ?? true);
  return repeat<Measured>(
    {
      workload: workload.name,
      systems,
      unit: 'jobs/s',
      once: (system) => measureOnce(system as SystemName, workload, server, options),
      aside: ({ p50, p99 }) => `p50 ${readable(p50)} ms, p99 ${readable(p99)} ms`,
      extra: (_, runs) => ({
        connections: workload.connections,
        p50: median(runs.map(({ p50 }) => p50)),
        p99: median(runs.map(({ p99 }) => p99)),
      }),
    },
    options,
  );
}

function start(system: SystemName, surroundings: Surroundings): Promise<RunningSystem> {
  if (system === 'fastify-insert') return startFastifyInsert(surroundings);
  return startTallyman({
    ...surroundings,
    baseline: system === 'tallyman' ? undefined : surroundings.baseline,
  });
}

/** Every request is answered, and what was answered is in the database: no more and no less. */
async function measureOnce(
  system: SystemName,
  workload: Workload,
  server: PostgresServer,
  { quick, baseline }: SuiteOptions,
): Promise<Measured> {
  const { measured, warmUp } = requestsOf(workload, quick);
  return usingDatabase(server, async (databaseUrl) => {
    const running = await start(system, { databaseUrl, ...workload, baseline });
    try {
      const { url, callers } = running;
      const result = await measureInChild<Task, Measured>(
        join(import.meta.dirname, 'generator.ts'),
        { url, callers, workload, measured, warmUp },
        RUN_TIMEOUT,
      );
      const expected = (measured + warmUp) * workload.jobsPerRequest;
      const found = await running.count();
      if (found !== expected) throw new Error(`${expected} jobs were answered, ${found} are there`);
      return result;
    } finally {
      await running.stop();
    }
  });
}

function tableOf(workload: Workload, rows: readonly Row[]): string {
  const own = rows.filter((row) => row.workload === workload.name);
  const ours = own.find((row) => row.system === 'tallyman')?.value;
  const body = own.map((row) => [
    row.system,
    readable(row.value),
    `${readable(row.min)}–${readable(row.max)}`,
    readable(row.p50 as number),
    readable(row.p99 as number),
    ours === undefined ? '–' : `${(ours / row.value).toFixed(2)}×`,
  ]);
  const head = [workload.name, 'jobs/s', 'min–max', 'p50 ms', 'p99 ms', 'tallyman is'];
  return `${workload.summary}\n${table(head, body)}`;
}
