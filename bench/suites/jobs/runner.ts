import { join } from 'node:path';
import { measureInChild } from '../../lib/child.ts';
import { readable } from '../../lib/figures.ts';
import { describePostgres, installedVersion, startPostgres } from '../../lib/postgres.ts';
import { redisVersion } from '../../lib/redis.ts';
import type { SuiteOptions, SuiteResult } from '../../lib/suite.ts';
import type { Measured, Task } from './measure/bench.ts';
import { type Cell, rowsOf, tableOf } from './report.ts';
import { type Stores, stores } from './stores.ts';
import type { System } from './system.ts';
import { systemNamed } from './systems/index.ts';
import { BASELINE_SYSTEMS, SYSTEMS, type SystemName } from './systems/names.ts';
import { sizeOf, timeoutOf, WORKLOADS } from './workloads.ts';

const PEERS = ['graphile-worker', 'pg-boss', 'bullmq', 'ioredis', 'pg'];

interface Contender {
  readonly name: SystemName;
  readonly system: System;
}

/** Runs every workload on every system and reports the medians. */
export async function run(options: SuiteOptions): Promise<SuiteResult> {
  const workloads = WORKLOADS.filter(({ name }) => options.only?.includes(name) ?? true);
  const { baseline } = options;
  const names = [...(baseline === undefined ? [] : BASELINE_SYSTEMS), ...SYSTEMS]
    .map(({ name }) => name)
    .filter((name) => options.systems?.includes(name) ?? true);
  const contenders: Contender[] = await Promise.all(
    names.map(async (name) => ({ name, system: await systemNamed(name, baseline) })),
  );
  const server = await startPostgres();
  try {
    const redis = await redisVersion();
    const facts = [
      `Server: ${await describePostgres(server)}; ${redis ? `Redis ${redis}` : 'no redis-server found'}`,
      `Peers: ${(await Promise.all(PEERS.map(installedVersion))).join(', ')}`,
      `Medians of ${options.repetitions}, repetitions interleaved, each run in a process and a store of its own`,
    ];
    for (const fact of facts) options.progress(fact);
    const home = stores(server, redis !== undefined);
    const cells: Cell[] = [];
    for (const workload of workloads) cells.push(...(await runWorkload(workload, contenders, home, options)));
    return {
      rows: cells.flatMap(rowsOf),
      tables: [...workloads.map((workload) => tableOf(workload, cells)), facts.join('\n')],
      failures: cells.flatMap((cell) => cell.failures),
    };
  } finally {
    await server.stop();
  }
}

type WorkloadEntry = (typeof WORKLOADS)[number];

/** A B C, A B C, A B C: a slow minute of the machine hits all systems and not one. */
async function runWorkload(
  workload: WorkloadEntry,
  contenders: readonly Contender[],
  home: Stores,
  options: SuiteOptions,
): Promise<Cell[]> {
  const present = contenders.filter(({ system }) => !system.skips?.(workload.name));
  const cells = present.map(({ name, system }) => {
    const lacking = system.lacks?.(workload.name) ?? home.lacks(system.store);
    const size = sizeOf(workload.name, { quick: options.quick, slow: system.slow === true });
    return { name, system, cell: { system: name, workload, size, lacking, runs: [], failures: [] } as Cell };
  });
  for (let repetition = 1; repetition <= options.repetitions; repetition += 1) {
    for (const { name, system, cell } of cells) {
      // A system that broke a promise is not asked again: its figure is void already.
      if (cell.lacking !== undefined || cell.failures.length > 0) continue;
      const label = `${workload.name.padEnd(18)}${name.padEnd(24)}${repetition}/${options.repetitions}`;
      try {
        const measured = await home.using(system.store, (url) =>
          measureInChild<Task, Measured>(
            join(import.meta.dirname, 'measurer.ts'),
            { system: name, workload: workload.name, size: cell.size, url, baseline: options.baseline },
            timeoutOf(workload.name),
          ),
        );
        cell.runs.push(measured);
        const seen = Object.entries(measured.extra ?? {}).map(
          ([what, value]) =>
            `${what} ${Number.isInteger(value) ? value.toLocaleString('en-US') : readable(value)}`,
        );
        const extra = seen.length === 0 ? '' : `  (${seen.join(', ')})`;
        options.progress(`${label}  ${readable(measured.value).padStart(9)} ${workload.unit}${extra}`);
      } catch (error) {
        const failure = `${workload.name}, ${name}, repetition ${repetition}: ${(error as Error).message}`;
        cell.failures.push(failure);
        options.progress(`${label}  FAILED: ${(error as Error).message}`);
      }
    }
  }
  return cells.map(({ cell }) => cell);
}
