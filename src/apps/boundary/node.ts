/** The parts of a node that serve, carry and commands share: storage, objects, intake. */
import type { Database } from '../../engine/database/database.ts';
import { TenantDatabase } from '../../engine/database/tenant.ts';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import { emit } from '../../events/emit.ts';
import { authorize, type Identity } from './domain/identity.ts';
import { factsDropped } from './events.ts';
import { type Caller, Intake } from './intake.ts';
import { Admission, type AdmissionOptions, freeBytesOf } from './limits/admission.ts';
import type { Blobs } from './objects/blobs.ts';
import { FileBlobs } from './objects/files.ts';
import { Objects } from './objects/objects.ts';
import { onFullOf, type Settings } from './settings.ts';
import { NodeStore, type NodeStoreOptions } from './store/node-store.ts';
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
  stop(): Promise<void>;
}

/** A hold counts for this long: longer than an append can take. */
export const holdGraceMs = 600_000;

/** Stop the parts when they are no longer needed. */
export async function openNode(
  settings: Settings,
  database: Database,
  { onTrimmed, onDropped }: Pick<AdmissionOptions, 'onTrimmed' | 'onDropped'> = {},
): Promise<NodeParts> {
  const { zone, zones, limits } = settings;
  const { folder, maxBytes, storage } = settings.objects;
  const blobs = await openBlobs(settings, database);
  // Deliveries ask it, and it asks the storage: nothing is delivered before both are made.
  const admit: NodeStoreOptions['admit'] = (stream, bytes) => admission.admit(stream, bytes);
  const store = await openStore(settings, database, { admit }).catch(async (error: unknown) => {
    await blobs.stop();
    throw error;
  });
  const freeOnDisk = freeBytesOf(folder);
  const freeBytes = storage === 'files' ? freeOnDisk : async () => undefined;
  const room = async (): Promise<number> => (await freeOnDisk()) - limits.reserveBytes;
  const objects = new Objects({ database, blobs, maxBytes, ...(storage === 'files' && { room }) });
  const noting = new Set<Promise<void>>();
  const admission = new Admission({
    ...{ store, limits, freeBytes },
    onFull: ({ buffer, to }) => (buffer === 'store' ? onFullOf(settings, to) : 'refuse'),
    ...(onTrimmed && { onTrimmed }),
    onDropped: (stream, count) => {
      const noted = noteDropped(database, stream, count).catch((error) =>
        database.logger.warn({ error: messageOf(error) }, 'the event of dropped facts could not be emitted'),
      );
      noting.add(noted);
      void noted.finally(() => noting.delete(noted));
      onDropped?.(stream, count);
    },
  });
  const intake = new Intake({ zone, zones, store, objects, admission, holdGraceMs });
  const stop = async (): Promise<void> => {
    await admission.stop();
    await Promise.all(noting);
    await Promise.all([store.stop(), blobs.stop()]);
  };
  return { settings, database, store, blobs, objects, admission, intake, stop };
}

async function noteDropped(database: Database, stream: StreamId, count: number): Promise<void> {
  await new TenantDatabase(database, stream.tenantId).transaction((tx) =>
    emit(tx, factsDropped(stream, count)),
  );
}

/** The packages of NATS are loaded only where they are used. */
async function openStore(
  { storage, jetstream, tenantId, zone }: Settings,
  database: Database,
  options: NodeStoreOptions,
): Promise<FactStore> {
  if (storage === 'postgres') return new PostgresFactStore(database, options);
  const { JetStreamLog } = await import('./store/jetstream/log.ts');
  const ofLog = { ...jetstream, tenantId, zone, logger: database.logger };
  return new NodeStore(database, await JetStreamLog.open(database, ofLog), options);
}

/** With a connection of its own: large objects do not hold up facts. */
async function openBlobs(
  { objects: { storage, folder }, jetstream, tenantId, zone }: Settings,
  { logger }: Database,
): Promise<Blobs> {
  if (storage === 'jetstream') {
    const { JetStreamBlobs } = await import('./objects/jetstream/blobs.ts');
    return JetStreamBlobs.open({ ...jetstream, tenantId, zone, logger });
  }
  return FileBlobs.open(folder).catch((error: unknown) => {
    throw new TallymanError(
      'BAD_CONFIG',
      `boundary.objects.folder (${folder}) cannot be used: ${messageOf(error)}`,
      { cause: error },
    );
  });
}

/** A caller on this machine, with the node's own configuration: it may do what anyone of the zone may. */
export function localCaller(
  { zone, sendsTo, tenantId }: Pick<Settings, 'zone' | 'sendsTo' | 'tenantId'>,
  name: string,
): Caller {
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
