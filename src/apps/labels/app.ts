import { defineApp } from '../../host/app.ts';
import { addLabels } from './commands.ts';
import { labelsComponent } from './component.ts';
import { labelsKeys } from './config.ts';
import { labelEventTypes } from './events.ts';
import { addSimulateLabels } from './simulate-command.ts';
import { sealedInStores } from './stores.ts';
import { labelsLike, momentsOf } from './timeline.ts';

export const labelsApp = defineApp({
  name: 'labels',
  summary: 'electronic shelf labels: what each should show, brought to its gateway',
  component: labelsComponent,
  config: labelsKeys,
  errors: { LABEL_TEMPLATE: 400, LABEL_TOO_COSTLY: 400, LABELS_BUSY: 503 },
  kinds: [{ name: 'labels.push' }, { name: 'labels.drift' }],
  events: labelEventTypes,
  sealed: [sealedInStores],
  routes: async () => (await import('./routes/index.ts')).labelsRoutes,
  commands: (program, frame) => {
    addLabels(program, frame);
    addSimulateLabels(program);
  },
  metrics: async (registry) => (await import('./metrics.ts')).exposeLabels(registry),
  timeline: momentsOf,
  search: labelsLike,
  start: async (host, config, observer) => (await import('./start.ts')).startLabels(host, config, observer),
});
