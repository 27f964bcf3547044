import { defineApp } from '../../host/app.ts';
import { addBoundary } from './commands/index.ts';
import { boundaryComponent } from './component.ts';
import { boundaryKeys } from './config.ts';
import { boundaryProblems } from './config-problems.ts';
import { boundaryEventTypes } from './events.ts';
import { factsLike, momentsOf } from './timeline.ts';

export const boundaryApp = defineApp({
  name: 'boundary',
  summary: 'facts and objects between zones that may not see each other for days, each once, in order',
  component: boundaryComponent,
  config: boundaryKeys,
  contradictions: boundaryProblems,
  events: boundaryEventTypes,
  commands: addBoundary,
  metrics: async (registry) => (await import('./metrics.ts')).exposeBoundary(registry),
  timeline: momentsOf,
  search: factsLike,
  start: async (host, config, observer) => (await import('./start.ts')).startBoundary(host, config, observer),
});
