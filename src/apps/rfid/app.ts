import { defineApp } from '../../host/app.ts';
import { addRfid } from './commands.ts';
import { rfidComponent } from './component.ts';
import { rfidKeys } from './config.ts';
import { rfidEventTypes } from './events.ts';
import { addReplay } from './replay-command.ts';
import { addSimulateReaders } from './simulate-command.ts';
import { basketsLike, momentsOf } from './timeline.ts';

export const rfidApp = defineApp({
  name: 'rfid',
  summary: 'baskets with tags: reads from MQTT, movements, shipments, replay',
  dependsOn: ['iot'],
  component: rfidComponent,
  config: rfidKeys,
  contradictions: (config) =>
    config['retention.readsMs'] < config['retention.rawReadsMs']
      ? [
          `retention.readsMs (${config['retention.readsMs']}) must not be below retention.rawReadsMs (${config['retention.rawReadsMs']}): a read that is replayed would not be recognised`,
        ]
      : [],
  kinds: [
    { name: 'rfid.process-read' },
    { name: 'rfid.reconcile-camera-read' },
    { name: 'rfid.import-plates' },
    { name: 'rfid.forget-reads' },
    { name: 'iot.unreadable-message' },
  ],
  errors: { BUSY: 503 },
  events: rfidEventTypes,
  routes: async (host) => (await import('./routes.ts')).rfidRoutes(host),
  commands: (program, frame) => {
    addRfid(program, frame);
    addReplay(program, frame);
    addSimulateReaders(program, frame);
  },
  metrics: async (registry) => new (await import('./intake/metrics.ts')).PlantMetrics(registry),
  timeline: momentsOf,
  search: basketsLike,
  demo: async () => (await import('./demo/plant.ts')).plantDemo,
  start: async (host, config, metrics) => (await import('./start.ts')).startRfid(host, config, metrics),
});
