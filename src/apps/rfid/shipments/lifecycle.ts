import type { Queryable } from '../../../engine/database/database.ts';
import type { Kind } from '../../../engine/jobs/kind.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import { lockIds } from '../lock-ids.ts';
import { none, type ReplayCounts } from '../replay/counts.ts';
import { Follower } from '../replay/follower.ts';
import { keepAtIt } from '../replay/keep-at-it.ts';
import { type SourceRow, TagReadSource, type TagReadTable } from '../replay/source.ts';
import type { SeenPlate } from './camera-reads.ts';

export interface LifecycleOptions {
  readonly tallyman: Tallyman;
  readonly kind: Kind<SeenPlate>;
  /** Where camera reads are. Default: `iot.camera_reads` of the engine's database. */
  readonly on?: Queryable;
  readonly table?: TagReadTable;
  /** Camera reads in one transaction. Default 500. */
  readonly batch?: number;
}

const cameraReads: TagReadTable = { table: 'iot.camera_reads', columns: { epc: 'oblpn' } };

/**
 * Enqueues a job for each camera read, once. One instance at a time reads them by id from a checkpoint; the jobs are in the
 * transaction that moves the checkpoint. Rows that commit late are found the way replay finds them; a row that is read
 * twice is dropped by its dedupe key.
 */
export class ShipmentLifecycle {
  readonly #options: LifecycleOptions;
  readonly #follower: Follower;
  readonly #checkpoint: string;

  constructor(options: LifecycleOptions) {
    const { tallyman, table = cameraReads, batch = 500 } = options;
    const source = new TagReadSource(options.on ?? tallyman.database, table);
    this.#options = options;
    this.#checkpoint = `rfid.camera-reads/${source.name}`;
    this.#follower = new Follower({
      source,
      batch,
      checkpoints: tallyman.checkpoints,
      exclusively: (id, work, more) => tallyman.exclusively(id, work, more),
    });
  }

  /** From the checkpoint to the newest camera read. `undefined`: another instance holds the lock. */
  catchUp(signal?: AbortSignal): Promise<ReplayCounts | undefined> {
    return this.#follower.advance(
      { checkpoint: this.#checkpoint, lockId: lockIds.shipmentLifecycle },
      (section, rows, save) =>
        section.transaction(async (tx) => {
          const jobs = await this.#enqueue(tx, rows);
          const version = await save(tx);
          const duplicates = jobs.filter(({ existing }) => existing).length;
          return {
            counts: { ...none, read: rows.length, processed: jobs.length - duplicates, duplicates },
            version,
          };
        }),
      { signal },
    );
  }

  /** Runs until the signal fires. */
  follow({ signal, intervalMs = 5000 }: { readonly signal: AbortSignal; readonly intervalMs?: number }) {
    const { logger } = this.#options.tallyman.database;
    return keepAtIt({ signal, intervalMs, logger, what: this.#checkpoint }, async () => {
      await this.catchUp(signal);
    });
  }

  #enqueue(tx: Queryable, rows: readonly SourceRow[]) {
    const { tallyman, kind } = this.#options;
    return tallyman.enqueueMany(
      kind,
      rows.map(({ id, tenantId, deviceId, epc, eventTimestamp }) => ({
        payload: { deviceId, oblpn: epc.trim(), eventTimestamp, cameraReadId: id },
        tenantId: tenantId || 'default',
        dedupeKey: `${this.#checkpoint}/${id}`,
      })),
      { tx },
    );
  }
}
