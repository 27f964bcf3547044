/**
 * A camera at a door has seen an outbound license plate: the basket with that plate was read at the same door at about the
 * same time. Each camera read is a job. If something is missing (the warehouse system has not sent the plate yet, or the
 * basket's reads are late), the job is retried for a while and then becomes a dead letter that you can redrive.
 */
import { z } from 'zod';
import type { Queryable } from '../../../engine/database/database.ts';
import { TallymanError } from '../../../engine/errors.ts';
import { parseInstant } from '../../../engine/instant.ts';
import { type Backoff, defineKind, type Kind } from '../../../engine/jobs/kind.ts';
import { basketOf, statusAfter } from './reconcile.ts';
import {
  baskets,
  countLines,
  findLine,
  load,
  locationOf,
  lockFreeBasket,
  lockShipment,
  saveStatus,
  tellClosed,
} from './store.ts';

export interface SeenPlate {
  readonly deviceId: string;
  readonly oblpn: string;
  /** ISO 8601 with a zone. */
  readonly eventTimestamp: string;
  /** Its row in `iot.camera_reads`. */
  readonly cameraReadId?: string | undefined;
}

export interface CameraReadOptions {
  /** How far apart the times of camera and reader may be, either way. Default 60,000. */
  readonly windowMs?: number;
  /** Default 5. */
  readonly maxAttempts?: number;
  readonly backoff?: Backoff;
}

const defaultWindowMs = 60_000;

/** The kind that links a plate to its basket. */
export function reconcileCameraRead(options: CameraReadOptions = {}): Kind<SeenPlate> {
  const { windowMs = defaultWindowMs, maxAttempts = 5, backoff } = options;
  return defineKind<SeenPlate>({
    name: 'rfid.reconcile-camera-read',
    schema: z.object({
      deviceId: z.string(),
      oblpn: z.string(),
      eventTimestamp: z.string(),
      cameraReadId: z.string().optional(),
    }),
    queue: 'rfid',
    retry: { maxAttempts, ...(backoff && { backoff }) },
    scope: 'tenant',
    handler: (plate, context) => context.commit((tx) => reconcile(tx, context.tenantId, plate, windowMs)),
  });
}

/** Throws when something is missing. A plate that already has a basket keeps it. */
export async function reconcile(
  tx: Queryable,
  tenantId: string,
  plate: SeenPlate,
  windowMs = defaultWindowMs,
): Promise<void> {
  const { deviceId, oblpn, eventTimestamp } = plate;
  const seenAt = parseInstant(eventTimestamp);
  const planned = await findLine(tx, tenantId, oblpn);
  if (!planned)
    throw new TallymanError(
      'OBLPN_MISSING',
      `no shipment has plate "${oblpn}" yet; redrive this when the warehouse system has sent it`,
    );
  const status = await lockShipment(tx, planned.shipmentId);
  // Read it again, now that it is locked.
  const line = await findLine(tx, tenantId, oblpn);
  if (!line || line.basketId !== null) return;
  if (line.shipmentId !== planned.shipmentId) throw busy(oblpn);

  const locationId = await locationOf(tx, tenantId, deviceId);
  if (locationId === undefined)
    throw new TallymanError('UNKNOWN_DEVICE', `camera "${deviceId}" is not known, or has no location`);
  const sightings = await baskets(tx, { tenantId, locationId }, { at: eventTimestamp, withinMs: windowMs });
  const basketId = basketOf(
    seenAt,
    sightings.map(({ basketId, micros, taken }) => ({ basketId, at: Number(micros), taken })),
  );
  if (basketId === undefined)
    throw new TallymanError(
      'BASKET_MISSING',
      `no free basket was read at the door of camera "${deviceId}" within ${windowMs} ms of ${eventTimestamp}`,
    );
  if (!(await lockFreeBasket(tx, basketId))) throw busy(oblpn);
  if (!(await load(tx, line, { id: basketId, at: eventTimestamp, by: deviceId }))) throw busy(oblpn);
  const next = statusAfter(status, await countLines(tx, line.shipmentId));
  if (next !== status)
    await saveStatus(tx, line.shipmentId, { before: status, status: next }, eventTimestamp);
  if (next === 'SHIPPED') await tellClosed(tx, line.shipmentId);
}

const busy = (oblpn: string): TallymanError =>
  new TallymanError('BUSY', `plate "${oblpn}" or its basket was changed by somebody else just now`);
