/** The process in which one run of one workload on one system is measured. */
import { serve } from '../../lib/child.ts';
import { openPlant, verify } from './plant.ts';
import { distinctReads } from './stream.ts';
import { systems } from './systems/index.ts';
import type { SystemName } from './systems/names.ts';
import type { Size } from './workloads.ts';

export interface Task {
  readonly system: SystemName;
  readonly size: Size;
  readonly url: string;
}

export interface Measured {
  readonly value: number;
  /** What the process's memory grew by from half-way to the end, in MB. */
  readonly growth: number;
  /** Processor time of this process, in µs a read; the server's is not in it. */
  readonly node: number;
}

const megabytes = () => process.memoryUsage().rss / 2 ** 20;

serve<Task, Measured>(async ({ system: name, size, url }, report) => {
  const system = systems[name];
  report('preparing');
  const database = await openPlant(url, size, system.connections);
  await system.prepare?.(database, size, url);
  report('measuring');
  let half = 0;
  const cpu = process.cpuUsage();
  const begun = performance.now();
  await system.run(database, size, () => {
    half = megabytes();
  });
  const seconds = (performance.now() - begun) / 1000;
  const { user, system: kernel } = process.cpuUsage(cpu);
  const growth = half === 0 ? 0 : megabytes() - half;
  await system.finish?.();
  if (system.counts ?? true) await verify(database, distinctReads(size), size);
  await database.close();
  return { value: size.reads / seconds, growth, node: (user + kernel) / size.reads };
});
