import { join } from 'node:path';
import { measureInChild } from '../../lib/child.ts';
import { median, readable, table } from '../../lib/figures.ts';
import { mosquittoVersion } from '../../lib/mosquitto.ts';
import { describePostgres, type PostgresServer, startPostgres, usingDatabase } from '../../lib/postgres.ts';
import { repeat } from '../../lib/repeat.ts';
import type { Row, SuiteOptions, SuiteResult } from '../../lib/suite.ts';
import type { Measured, Task } from './measurer.ts';
import { SYSTEMS, type SystemName } from './systems/names.ts';
import { type Size, sizeOf, WORKLOADS, type Workload } from './workloads.ts';

const RUN_TIMEOUT = 400_000;

export async function run(options: SuiteOptions): Promise<SuiteResult> {
  const workloads = WORKLOADS.filter(({ name }) => options.only?.includes(name) ?? true);
  const server = await startPostgres();
  try {
    const facts = [
      `Server: ${await describePostgres(server)}; Mosquitto ${(await mosquittoVersion()) ?? 'is not on this machine'}`,
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

/** The limits are taken where they are compared; how we fare with size and time is our own matter. */
const ownMatters: Readonly<Record<Workload, readonly SystemName[] | undefined>> = {
  reads: undefined,
  'reads-1m-baskets': ['tallyman'],
  'reads-million': ['tallyman', 'tallyman-mqtt'],
  'reads-late': ['tallyman'],
  'reads-listened': ['tallyman'],
};

const contenders = (workload: Workload, options: SuiteOptions) =>
  SYSTEMS.filter(
    ({ name }) => (options.systems?.includes(name) ?? true) && (ownMatters[workload]?.includes(name) ?? true),
  );

function measure(workload: Workload, server: PostgresServer, options: SuiteOptions) {
  const sizes = new Map<string, Size>(
    contenders(workload, options).map(({ name, slow }) => [name, sizeOf(workload, slow, options.quick)]),
  );
  const sizeFor = (system: string) => sizes.get(system) as Size;
  return repeat<Measured>(
    {
      workload,
      systems: [...sizes.keys()],
      unit: 'reads/s',
      once: (system) =>
        usingDatabase(server, (url) =>
          measureInChild<Task, Measured>(
            join(import.meta.dirname, 'measurer.ts'),
            { system: system as SystemName, size: sizeFor(system), url },
            RUN_TIMEOUT,
          ),
        ),
      aside: ({ node }) => `${readable(node)} µs Node a read`,
      extra: (system, runs) => ({
        reads: sizeFor(system).reads,
        growth: median(runs.map(({ growth }) => growth)),
        node: median(runs.map(({ node }) => node)),
      }),
    },
    options,
  );
}

function tableOf(workload: Workload, rows: readonly Row[]): string {
  const own = rows.filter((row) => row.workload === workload);
  const figure = (system: string) => own.find((row) => row.system === system)?.value;
  const ratio = (a: number | undefined, b: number | undefined) =>
    a === undefined || b === undefined ? '–' : `${(a / b).toFixed(2)}×`;
  const body = own.map((row) => [
    row.system,
    readable(row.value),
    `${readable(row.min)}–${readable(row.max)}`,
    ratio(figure('tallyman'), row.value),
    ratio(row.value, figure('copy')),
    readable(row.growth as number),
  ]);
  const endToEnd = figure('tallyman-mqtt');
  const bound = Math.min((figure('tallyman') ?? Number.NaN) / 2, figure('broker') ?? Number.NaN);
  const verdict =
    endToEnd === undefined || Number.isNaN(bound)
      ? ''
      : `\nEnd to end is ${ratio(endToEnd, bound)} the lesser of half of tallyman and the broker’s own limit.`;
  const summary = WORKLOADS.find(({ name }) => name === workload)?.summary ?? '';
  return `${summary}\n${table([workload, 'reads/s', 'min–max', 'tallyman is', 'of COPY', 'growth MB'], body)}${verdict}`;
}
