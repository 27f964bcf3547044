import type { Suite } from '../../lib/suite.ts';
import { SYSTEMS } from './systems/names.ts';
import { WORKLOADS } from './workloads.ts';

export const suite: Suite = {
  name: 'append',
  summary:
    "Facts appended durably, each once: ours, NATS JetStream, PostgreSQL by hand, and the disk's own limit.",
  workloads: WORKLOADS,
  systems: SYSTEMS,
  run: async (options) => (await import('./runner.ts')).run(options),
};
