import type { Suite } from '../../lib/suite.ts';
import { NEIGHBOUR } from './neighbour/summary.ts';
import { BASELINE_SYSTEMS, SYSTEMS } from './systems/names.ts';
import { WORKLOADS } from './workloads.ts';

export const suite: Suite = {
  name: 'http',
  summary: 'Jobs enqueued over HTTP, beside a bare Fastify route with one INSERT, which bounds that.',
  workloads: [...WORKLOADS, NEIGHBOUR],
  systems: SYSTEMS,
  baselineSystems: BASELINE_SYSTEMS,
  run: async (options) => (await import('./runner.ts')).run(options),
};
