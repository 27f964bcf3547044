import type { Suite } from '../../lib/suite.ts';
import { SYSTEMS } from './systems/names.ts';
import { WORKLOADS } from './workloads.ts';

export const suite: Suite = {
  name: 'reads',
  summary: 'Tag reads into baskets and movements: ours, a service as usually written, and COPY as the limit.',
  workloads: WORKLOADS,
  systems: SYSTEMS,
  run: async (options) => (await import('./runner.ts')).run(options),
};
