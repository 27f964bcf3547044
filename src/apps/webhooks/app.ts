import { defineApp } from '../../host/app.ts';
import { addWebhooks } from './commands.ts';
import { webhooksComponent } from './component.ts';
import { webhooksKeys } from './config.ts';
import { webhookEventTypes } from './event-types.ts';

export const webhooksApp = defineApp({
  name: 'webhooks',
  summary: 'signed deliveries of events to the endpoints that subscribe to them',
  component: webhooksComponent,
  config: webhooksKeys,
  errors: { BAD_URL: 400, FORBIDDEN_ADDRESS: 400 },
  kinds: [
    { name: 'webhook.deliver' },
    {
      name: 'events.purge',
      acrossTenants: 'deletes old events of every tenant; takes nothing from its payload',
    },
  ],
  events: webhookEventTypes,
  routes: async (host) => (await import('./routes.ts')).webhookRoutes(host),
  commands: addWebhooks,
  start: async (host, config) => (await import('./start.ts')).startWebhooks(host, config),
});
