/** The parts of a node that serve, carry and commands share: storage, objects, intake. */
import type { Database } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { authorize, type Identity } from './domain/identity.ts';
import { type Caller, Intake } from './intake.ts';
import { Admission, freeBytesOf } from './limits/admission.ts';
import type { Blobs } from './objects/blobs.ts';
import { FileBlobs } from './objects/files.ts';
import { Objects } from './objects/objects.ts';
import type { Settings } from './settings.ts';
import { PostgresFactStore } from './store/postgres/store.ts';
import type { FactStore, StreamId } from './store/store.ts';

export interface NodeParts {
  readonly settings: Settings;
  readonly database: Database;
  readonly store: FactStore;
  readonly blobs: Blobs;
  readonly objects: Objects;
  readonly admission: Admission;
  readonly intake: Intake;
}

/** A hold counts for this long: longer than an append can take. */
export const holdGraceMs = 600_000;

/** Stop the store when the parts are no longer needed. */
export async function openNode(settings: Settings, database: Database): Promise<NodeParts> {
  const { zone, zones, limits } = settings;
  const { folder, maxBytes } = settings.objects;
  const store = new PostgresFactStore(database);
  const blobs = await FileBlobs.open(folder).catch((error: unknown) => {
    throw new TallymanError(
      'BAD_CONFIG',
      `boundary.objects.folder (${folder}) cannot be used: ${(error as Error).message}`,
      { cause: error },
    );
  });
  const objects = new Objects({ database, blobs, maxBytes });
  const admission = new Admission({ store, limits, freeBytes: freeBytesOf(folder) });
  const intake = new Intake({ zone, zones, store, objects, admission, holdGraceMs });
  return { settings, database, store, blobs, objects, admission, intake };
}

/** A caller on this machine, with the node's own configuration: it may do what anyone of the zone may. */
export function localCaller({ zone, sendsTo, tenantId }: Settings, name: string): Caller {
  const who: Identity = { zone, role: 'local', name };
  return {
    tenantId,
    authorize: ({ from, to }) => authorize(who, { kind: 'append', stream: { from, to } }, { zone, sendsTo }),
  };
}

/** The stream between this zone and another one, in the direction that the names say. */
export function streamBetween({ zone, zones, tenantId }: Settings, from: string, to: string): StreamId {
  const source = zones.resolve(from, '--from');
  const target = zones.resolve(to, '--to');
  if (source === target || (source !== zone && target !== zone))
    throw new TallymanError(
      'BAD_OPTION',
      `there is no stream from "${source}" to "${target}" on a node of zone "${zone}": one of the two must be this zone`,
    );
  return { tenantId, buffer: source === zone ? 'store' : 'forward', from: source, to: target };
}
