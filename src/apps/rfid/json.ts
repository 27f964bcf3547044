/** Baskets, movements and shipments as the API and `--json` show them. */
import type { Basket, Movement } from './baskets.ts';
import type { RefusedTag } from './refused-tags.ts';
import type { Shipment, ShipmentLine } from './shipments/shipments.ts';

export const basketJson = (basket: Basket) => ({
  id: basket.id,
  epc: basket.epcHex,
  epc_uri: basket.epcUri,
  location_id: basket.locationId,
  last_device: basket.lastDeviceId,
  first_seen_at: basket.firstSeenAt,
  last_seen_at: basket.lastSeenAt,
});

export const movementJson = (movement: Movement) => ({
  id: movement.id,
  basket_id: movement.basketId,
  epc: movement.epcHex,
  epc_uri: movement.epcUri,
  from_location_id: movement.fromLocationId,
  to_location_id: movement.toLocationId,
  device: movement.deviceId,
  at: movement.at,
  repeats: movement.repeats,
  last_at: movement.lastAt,
});

export const shipmentJson = (shipment: Shipment) => ({
  id: shipment.id,
  number: shipment.number,
  status: shipment.status,
  created_at: shipment.createdAt,
  loading_at: shipment.loadingAt,
  shipped_at: shipment.shippedAt,
  lines: shipment.lines,
  loaded_lines: shipment.loadedLines,
  closed_lines: shipment.closedLines,
});

export const plateJson = (line: ShipmentLine) => ({
  id: line.id,
  oblpn: line.oblpn,
  epc: line.epcHex,
  loaded_at: line.loadedAt,
  loaded_by: line.loadedBy,
  closed_at: line.closedAt,
});

export const refusedTagJson = (tag: RefusedTag) => ({
  id: tag.id,
  device: tag.deviceId,
  epc: tag.epcHex,
  reads: tag.reads,
  first_at: tag.firstAt,
  last_at: tag.lastAt,
  error: tag.errorMessage,
});
