/** The process in which one run of one workload on one system is measured. */
import { serve } from '../../lib/child.ts';
import { systems } from './systems/index.ts';
import type { SystemName } from './systems/names.ts';
import type { Surroundings } from './systems/system.ts';

export interface Task extends Surroundings {
  readonly system: SystemName;
}

export interface Measured {
  /** Changes a second. */
  readonly value: number;
  /** Processor time of this process, in µs a change; the database's and the gateway's are not in it. */
  readonly node: number;
}

serve<Task, Measured>(async ({ system, ...surroundings }, report) => {
  report('preparing');
  const open = await systems[system].open(surroundings);
  report('measuring');
  const cpu = process.cpuUsage();
  const begun = performance.now();
  await open.run();
  const seconds = (performance.now() - begun) / 1000;
  const { user, system: kernel } = process.cpuUsage(cpu);
  report('verifying');
  await open.verify();
  await open.close();
  return { value: surroundings.labels / seconds, node: (user + kernel) / surroundings.labels };
});
