import type { Suite } from '../../lib/suite.ts';
import { SYSTEMS } from './systems/names.ts';
import { WORKLOADS } from './workloads.ts';

export const suite: Suite = {
  name: 'labels',
  summary:
    'Price changes until labels show them, on a simulated gateway without latency; and what bounds that.',
  workloads: WORKLOADS,
  systems: SYSTEMS,
  run: async (options) => (await import('./runner.ts')).run(options),
};
