/** Scheduled work of the plant, on one instance at a time: fetch outbound plates, delete old reads. */
import { z } from 'zod';
import { type AnyKind, defineKind, type Kind } from '../../../engine/jobs/kind.ts';
import type { NewSchedule } from '../../../engine/schedules/schedules.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import { importPlates, importPlatesKind, PlateImport, type Replay, type WarehouseSystem } from '../index.ts';
import { type Forgettable, forgetOldest } from './forget.ts';

export interface UpkeepOptions {
  /** Where outbound plates come from. Null: from nowhere, and a schedule that an earlier configuration left is removed. */
  readonly plates?:
    | { readonly system: WarehouseSystem; readonly tenantId: string; readonly cron: string }
    | null
    | undefined;
  readonly retention?: ReadRetention | undefined;
}

export interface ReadRetention {
  /** How long raw reads are kept, and so can be replayed. */
  readonly rawMs: number;
  /** How long processed reads are remembered. Not below `rawMs`: a read that can be replayed must be recognised. */
  readonly processedMs: number;
}

export interface Upkeep {
  readonly kinds: readonly AnyKind[];
  /** Creates the schedules; an unchanged schedule keeps its next due time. */
  schedule(): Promise<void>;
}

const forgetName = 'rfid.forget-reads';
const everyHour = '23 * * * *';
const rawReads: Forgettable = { table: 'iot.tag_reads', at: 'received_at' };
const deviceEvents: Forgettable = { table: 'iot.device_events', at: 'received_at' };
const processedReads: Forgettable = { table: 'rfid.tag_read_processings', at: 'processed_at' };

export function upkeepOf(tallyman: Tallyman, replay: Replay, options: UpkeepOptions = {}): Upkeep {
  const { plates, retention } = options;
  const schedules: NewSchedule[] = [];
  const kinds: AnyKind[] = [];
  if (plates) {
    const kind = importPlates(plateImport(tallyman, plates));
    kinds.push(kind);
    schedules.push({
      name: kind.name,
      cron: plates.cron,
      kind: kind.name,
      payload: {},
      tenantId: plates.tenantId,
    });
  }
  if (retention) {
    kinds.push(forgetReads(tallyman, replay, retention));
    schedules.push({ name: forgetName, cron: everyHour, kind: forgetName, payload: {} });
  }
  return {
    kinds,
    schedule: async () => {
      for (const schedule of schedules) await tallyman.schedules.upsert(schedule);
      if (plates !== undefined) await removeLeftover(tallyman, plates?.tenantId);
    },
  };
}

/** Without a warehouse system, or with one for another tenant, the schedule would go on to make jobs that nobody can run. */
async function removeLeftover({ schedules }: Tallyman, tenantId: string | undefined): Promise<void> {
  for (const each of await schedules.tenantsWith(importPlatesKind))
    if (each !== tenantId) await schedules.remove(importPlatesKind, each);
}

/** The import, for the schedule and for the command line. */
export const plateImport = (
  tallyman: Tallyman,
  { system, tenantId }: { readonly system: WarehouseSystem; readonly tenantId: string },
): PlateImport =>
  new PlateImport({
    system,
    tenantId,
    checkpoints: tallyman.checkpoints,
    exclusively: (lockId, work, more) => tallyman.exclusively(lockId, work, more),
  });

function forgetReads(
  { database }: Tallyman,
  replay: Replay,
  { rawMs, processedMs }: ReadRetention,
): Kind<Record<string, never>> {
  return defineKind({
    name: forgetName,
    schema: z.object({}),
    queue: 'rfid',
    priority: 3,
    scope: 'all',
    acrossTenants: 'deletes old rows of all tenants, by the configured ages',
    handler: async (_, { signal }) => {
      // Reads that replay has not processed stay, however old they are.
      const upTo = await replay.floor();
      await forgetOldest(database, rawReads, { keepMs: rawMs, upTo, signal });
      await forgetOldest(database, deviceEvents, { keepMs: rawMs, signal });
      await forgetOldest(database, processedReads, { keepMs: Math.max(processedMs, rawMs), signal });
    },
  });
}
