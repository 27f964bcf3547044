/** The process in which one run of one workload on one system is measured. */
import { serve } from '../../lib/child.ts';
import { systems } from './systems/index.ts';
import type { SystemName } from './systems/names.ts';
import type { Surroundings } from './systems/system.ts';

export interface Task extends Surroundings {
  readonly system: SystemName;
}

export interface Measured {
  /** Passports a second. */
  readonly value: number;
  /** Processor time of Node in µs a passport, workers included; PostgreSQL's is not in it. */
  readonly node: number;
}

serve<Task, Measured>(async ({ system, ...surroundings }, report) => {
  report('preparing');
  const open = await systems[system].open(surroundings);
  report('measuring');
  const cpu = process.cpuUsage();
  const begun = performance.now();
  const others = await open.run();
  const seconds = (performance.now() - begun) / 1000;
  const { user, system: kernel } = process.cpuUsage(cpu);
  report('verifying');
  await open.verify();
  await open.close();
  const { versions } = surroundings;
  return { value: versions / seconds, node: (user + kernel + others) / versions };
});
