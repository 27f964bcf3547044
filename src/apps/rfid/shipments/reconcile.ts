/** Which basket a plate is on, and the status of its shipment. Pure. */
import type { Micros } from '../../../engine/instant.ts';

export const shipmentStatuses = ['PLANNED', 'LOADING', 'SHIPPED'] as const;
export type ShipmentStatus = (typeof shipmentStatuses)[number];

/** A basket that was read at the door of the camera. */
export interface Sighting {
  readonly basketId: string;
  readonly at: Micros;
  /** It is on its way with another plate. */
  readonly taken: boolean;
}

/**
 * A plate is on one basket: the free basket that was read nearest in time to when the camera saw the plate. Of two equally
 * near, the one with the smaller id, so that the answer is always the same.
 */
export function basketOf(seenAt: Micros, sightings: readonly Sighting[]): string | undefined {
  let best: Sighting | undefined;
  for (const sighting of sightings) {
    if (sighting.taken) continue;
    if (best === undefined || isNearer(sighting, best, seenAt)) best = sighting;
  }
  return best?.basketId;
}

function isNearer(one: Sighting, other: Sighting, seenAt: Micros): boolean {
  const difference = Math.abs(one.at - seenAt) - Math.abs(other.at - seenAt);
  return difference < 0 || (difference === 0 && BigInt(one.basketId) < BigInt(other.basketId));
}

/** Only moves forward: a line that is added to a shipment that has left does not bring it back. */
export function statusAfter(
  status: ShipmentStatus,
  lines: { readonly all: number; readonly loaded: number },
): ShipmentStatus {
  if (status === 'SHIPPED' || (lines.all > 0 && lines.loaded === lines.all)) return 'SHIPPED';
  return lines.loaded > 0 ? 'LOADING' : status;
}
