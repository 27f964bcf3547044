import { purgeEventsDeclaration } from '../../events/purge.ts';
import { defineApp } from '../../host/app.ts';
import { addWebhooks } from './commands.ts';
import { webhooksComponent } from './component.ts';
import { webhooksKeys } from './config.ts';
import { webhookEventTypes } from './event-types.ts';
import { redeliverDeclaration } from './redelivery-kind.ts';
import { sealedInEndpoints } from './sealed.ts';

export const webhooksApp = defineApp({
  name: 'webhooks',
  summary: 'signed deliveries of events to the endpoints that subscribe to them',
  component: webhooksComponent,
  config: webhooksKeys,
  errors: { BAD_URL: 400, FORBIDDEN_ADDRESS: 400, TOO_MANY_ENDPOINTS: 429 },
  kinds: [{ name: 'webhook.deliver' }, redeliverDeclaration, purgeEventsDeclaration],
  events: webhookEventTypes,
  sealed: sealedInEndpoints,
  routes: async (host) => (await import('./routes.ts')).webhookRoutes(host),
  commands: addWebhooks,
  metrics: async (registry) => (await import('./metrics.ts')).exposeEvents(registry),
  start: async (host, config, observer) => (await import('./start.ts')).startWebhooks(host, config, observer),
});
