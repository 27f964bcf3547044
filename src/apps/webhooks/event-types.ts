import { z } from 'zod';
import { defineEventType } from '../../events/catalogue.ts';

export const pingType = defineEventType({
  type: 'webhook.ping',
  summary: 'Somebody asked for a test delivery to one endpoint; it goes to that endpoint alone',
  aggregateType: 'webhook_endpoint',
  schema: z.object({ message: z.string() }),
});

export const disabledType = defineEventType({
  type: 'webhook.endpoint.disabled',
  summary:
    'An endpoint was disabled, by a person or because its receiver answered 410; not sent to that endpoint',
  aggregateType: 'webhook_endpoint',
  schema: z.object({
    id: z.string(),
    host: z.string(),
    description: z.string(),
    by: z.enum(['person', 'receiver']),
    reason: z.string(),
  }),
});

export const webhookEventTypes = [pingType, disabledType];
