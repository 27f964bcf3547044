import { z } from 'zod';
import { defineEventType } from '../../events/catalogue.ts';

export const pingType = defineEventType({
  type: 'webhook.ping',
  summary: 'Somebody asked for a test delivery to one endpoint; it goes to that endpoint alone',
  aggregateType: 'webhook_endpoint',
  schema: z.object({ message: z.string() }),
});

export const webhookEventTypes = [pingType];
