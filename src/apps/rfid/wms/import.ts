import { z } from 'zod';
import type { Checkpoints } from '../../../engine/checkpoints/checkpoints.ts';
import type { Queryable } from '../../../engine/database/database.ts';
import { withinTenant } from '../../../engine/database/tenant.ts';
import { PermanentError } from '../../../engine/errors.ts';
import { defineKind, type Kind } from '../../../engine/jobs/kind.ts';
import { lockIds } from '../lock-ids.ts';
import type { Exclusively } from '../replay/follower.ts';
import { type OutboundPlate, planShipments, unknownPlates } from '../shipments/plan.ts';
import type { WarehouseSystem } from './warehouse-system.ts';

export interface PlateImportOptions {
  readonly system: WarehouseSystem;
  /** The tenant that owns the shipments. */
  readonly tenantId: string;
  readonly checkpoints: Checkpoints;
  readonly exclusively: Exclusively;
  /** Names the checkpoint, where a tenant has several systems. Default `oracle`. */
  readonly name?: string;
  /** The most pages in one run; the next run continues. Default 1,000. */
  readonly maxPages?: number;
}

export interface PlateImportPreview {
  readonly pages: number;
  readonly plates: number;
  /** Plates that are not stored yet. */
  readonly unknown: readonly OutboundPlate[];
}

export interface ImportCounts {
  readonly pages: number;
  readonly plates: number;
  /** Plates that were not stored before. */
  readonly planned: number;
}

/**
 * Pulls outbound license plates from a warehouse system, by one instance at a time. A page and the cursor behind it
 * commit together; a page that is pulled twice changes nothing.
 */
export class PlateImport {
  readonly #options: PlateImportOptions;
  readonly #checkpoint: string;

  constructor(options: PlateImportOptions) {
    this.#options = options;
    this.#checkpoint = `rfid.wms/${options.tenantId}/${options.name ?? 'oracle'}`;
  }

  /** The tenant that owns the shipments. */
  get tenantId(): string {
    return this.#options.tenantId;
  }

  /** Reads all pages. `undefined`: another instance holds the lock. */
  async run(signal?: AbortSignal): Promise<ImportCounts | undefined> {
    const { system, tenantId, checkpoints, exclusively, maxPages = 1000 } = this.#options;
    const result = await exclusively(
      lockIds.oracle,
      async (section) => {
        const saved = await checkpoints.load<string | null>(this.#checkpoint);
        let cursor = saved?.position ?? null;
        let version = saved?.version ?? 0;
        const counts = { pages: 0, plates: 0, planned: 0 };
        while (counts.pages < maxPages) {
          section.signal.throwIfAborted();
          const page = await system.plates(cursor, section.signal);
          // Ask for the last page again next time: more plates may be on it by then.
          const next = page.nextCursor ?? cursor;
          const ended = next === cursor;
          const expectedVersion = version;
          const done = await section.transaction(async (tx) => ({
            planned: await withinTenant(tx, tenantId, () => planShipments(tx, tenantId, page.plates)),
            version: ended
              ? version
              : await checkpoints.save(tx, this.#checkpoint, next, { expectedVersion }),
          }));
          cursor = next;
          version = done.version;
          counts.pages += 1;
          counts.plates += page.plates.length;
          counts.planned += done.planned;
          if (ended) break;
        }
        return counts;
      },
      signal ? { signal } : {},
    );
    return result.ran ? result.value : undefined;
  }

  /** What `run` would import now. Writes nothing and does not move the cursor. */
  async preview(on: Queryable, signal: AbortSignal): Promise<PlateImportPreview> {
    const { system, tenantId, checkpoints, maxPages = 1000 } = this.#options;
    let cursor = (await checkpoints.load<string | null>(this.#checkpoint))?.position ?? null;
    let plates = 0;
    const unknown: OutboundPlate[] = [];
    for (let pages = 1; ; pages += 1) {
      const page = await system.plates(cursor, signal);
      plates += page.plates.length;
      unknown.push(...(await unknownPlates(on, tenantId, page.plates)));
      const next = page.nextCursor ?? cursor;
      if (next === cursor || pages >= maxPages) return { pages, plates, unknown };
      cursor = next;
    }
  }
}

export const importPlatesKind = 'rfid.import-plates';

/** The kind that a schedule runs, for the tenant that the warehouse system belongs to. */
export function importPlates(plates: PlateImport): Kind<Record<string, never>> {
  return defineKind({
    name: importPlatesKind,
    schema: z.object({}),
    queue: 'rfid',
    scope: 'tenant',
    handler: async (_, { signal, tenantId }) => {
      if (tenantId !== plates.tenantId)
        throw new PermanentError('WRONG_TENANT', `tenant "${tenantId}" has no warehouse system here`);
      await plates.run(signal);
    },
  });
}
