import { labelEventTypes } from '../apps/labels/events.ts';
import { rfidEventTypes } from '../apps/rfid/events.ts';
import { webhookEventTypes } from '../apps/webhooks/event-types.ts';
import { EventCatalogue } from '../events/catalogue.ts';
import { engineEventTypes } from '../events/types.ts';

/** Every event that a part of the product emits. */
export const eventCatalogue = new EventCatalogue([
  ...engineEventTypes,
  ...webhookEventTypes,
  ...rfidEventTypes,
  ...labelEventTypes,
]);
