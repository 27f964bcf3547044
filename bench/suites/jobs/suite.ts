import type { Suite } from '../../lib/suite.ts';
import { SYSTEMS } from './systems/names.ts';
import { WORKLOADS } from './workloads.ts';

export const suite: Suite = {
  name: 'jobs',
  summary: 'Tallyman beside other job systems: enqueue, drain, lanes, wake-up.',
  workloads: WORKLOADS,
  systems: SYSTEMS,
  // Loaded late: `--help` has to work before the peers are installed.
  run: async (options) => (await import('./runner.ts')).run(options),
};
