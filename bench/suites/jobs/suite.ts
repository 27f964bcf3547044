import type { Suite } from '../../lib/suite.ts';
import { BASELINE_SYSTEMS, SYSTEMS } from './systems/names.ts';
import { WORKLOADS } from './workloads.ts';

export const suite: Suite = {
  name: 'jobs',
  summary: 'Tallyman beside other job systems: enqueue, drain, lanes, wake-up, effects, takeover.',
  workloads: WORKLOADS,
  systems: SYSTEMS,
  baselineSystems: BASELINE_SYSTEMS,
  // Loaded late: `--help` has to work before the peers are installed.
  run: async (options) => (await import('./runner.ts')).run(options),
};
