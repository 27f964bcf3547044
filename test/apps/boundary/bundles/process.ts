/** Exports or imports a bundle in a process of its own, which can be killed, or whose memory can be measured. */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { exportBundle } from '../../../../src/apps/boundary/bundles/export.ts';
import { importBundle } from '../../../../src/apps/boundary/bundles/import.ts';
import { signReceipt } from '../../../../src/apps/boundary/domain/receipt.ts';
import { FileBlobs } from '../../../../src/apps/boundary/objects/files.ts';
import { Objects } from '../../../../src/apps/boundary/objects/objects.ts';
import { PostgresFactStore } from '../../../../src/apps/boundary/store/postgres/store.ts';
import { Database } from '../../../../src/engine/database/database.ts';

export interface BundleTask {
  readonly action: 'export' | 'import';
  readonly url: string;
  /** Of the objects. */
  readonly folder: string;
  readonly path: string;
  /** PEM. */
  readonly ownKey: string;
  readonly peerKey: string;
}

/** Told after each chunk, and in the end. */
export interface BundleProgress {
  readonly offset: number;
  readonly isDone: boolean;
  /** Bytes. */
  readonly mostMemory: number;
}

const task = JSON.parse(process.argv[2] ?? '') as BundleTask;
const tell = (offset: number, isDone: boolean): void => {
  process.send?.({
    offset,
    isDone,
    mostMemory: process.resourceUsage().maxRSS * 1024,
  } satisfies BundleProgress);
};

const database = await Database.connect({ url: task.url });
const store = new PostgresFactStore(database);
const objects = new Objects({ database, blobs: await FileBlobs.open(task.folder), maxBytes: 1024 ** 4 });
const key = { id: 'k1', privateKey: createPrivateKey(task.ownKey) };
if (task.action === 'export') {
  const stream = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' } as const;
  const manifest = await exportBundle({ store, objects, stream, key, chunkFacts: 10 }, task.path);
  tell(manifest?.lastOffset ?? 0, true);
} else {
  const peerKey = createPublicKey(task.peerKey);
  const { frontier } = await importBundle(
    {
      store,
      objects,
      zone: 'enterprise',
      tenantId: 'default',
      keyOf: () => peerKey,
      sign: (receipt) => signReceipt(receipt, key),
      onProgress: ({ offset }) => tell(offset, false),
    },
    task.path,
  );
  tell(frontier?.offset ?? 0, true);
}
await store.stop();
await database.close();
process.disconnect?.();
