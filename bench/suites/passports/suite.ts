import type { Suite } from '../../lib/suite.ts';
import { SYSTEMS } from './systems/names.ts';
import { WORKLOADS } from './workloads.ts';

export const suite: Suite = {
  name: 'passports',
  summary:
    'Battery passports a second, from the request to the active, signed, labelled version; and what bounds that.',
  workloads: WORKLOADS,
  systems: SYSTEMS,
  run: async (options) => (await import('./runner.ts')).run(options),
};
