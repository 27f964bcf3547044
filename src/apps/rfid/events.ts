/** Events about baskets and shipments (RFID-16). `occurred_at` of the event is when it happened. */
import { z } from 'zod';
import { defineEventType } from '../../events/catalogue.ts';

const epc = z.string().describe('24 hex digits');
const location = z.string().describe('Id of a location');
const movement = z.object({
  from_location_id: location.nullable(),
  to_location_id: location,
  device_id: z.string(),
  at: z.string().describe('ISO 8601, UTC, microseconds'),
});
const shipment = z.object({ number: z.string() });

const shipmentEvent = (step: string, summary: string) =>
  defineEventType({ type: `rfid.shipment.${step}`, summary, aggregateType: 'shipment', schema: shipment });

const shipmentEvents = {
  planned: shipmentEvent('planned', 'The warehouse system named a shipment for the first time'),
  loading: shipmentEvent('loading', 'The first plate of a shipment was seen at a door'),
  shipped: shipmentEvent('shipped', 'Every plate of a shipment is on a basket'),
  closed: shipmentEvent('closed', 'Every basket of a shipment has come back'),
};

export const rfidEventTypes = [
  defineEventType({
    type: 'rfid.basket.created',
    summary: 'A tag was read for the first time',
    aggregateType: 'basket',
    schema: z.object({ epc_hex: epc, location_id: location, device_id: z.string() }),
  }),
  defineEventType({
    type: 'rfid.movement',
    summary: 'A basket was seen at another place than before; the first sighting comes from nowhere',
    aggregateType: 'basket',
    schema: z.object({
      movement_id: z.string(),
      epc_hex: epc,
      from_location_id: location.nullable(),
      to_location_id: location,
      device_id: z.string(),
    }),
  }),
  defineEventType({
    type: 'rfid.movement.corrected',
    summary:
      'A late read changed the past of a basket: a movement was inserted (`was` is null), changed, or withdrawn (`is` is null)',
    aggregateType: 'basket',
    schema: z.object({
      movement_id: z.string(),
      epc_hex: epc,
      was: movement.nullable(),
      is: movement.nullable(),
    }),
  }),
  defineEventType({
    type: 'rfid.basket.returned',
    summary: 'A basket was read at a return door',
    aggregateType: 'basket',
    schema: z.object({ epc_hex: epc }),
  }),
  ...Object.values(shipmentEvents),
];
