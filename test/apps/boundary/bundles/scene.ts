import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type ExportRange, exportBundle } from '../../../../src/apps/boundary/bundles/export.ts';
import type { KeyOf } from '../../../../src/apps/boundary/bundles/format.ts';
import { type ImportOptions, importBundle } from '../../../../src/apps/boundary/bundles/import.ts';
import { exportReceipts, importReceipts } from '../../../../src/apps/boundary/bundles/receipts.ts';
import { signReceipt } from '../../../../src/apps/boundary/domain/receipt.ts';
import type { StoredEntry, StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { type TestNodeOptions, testNode } from '../rpc/node.ts';

export const out: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };
export const into: StreamId = { ...out, buffer: 'forward' };

/** Two zones without a line between them, and a folder that can be carried. */
export async function twoIslands(nodes: { readonly enterprise?: TestNodeOptions } = {}) {
  const plant = await testNode('plant-a');
  const enterprise = await testNode('enterprise', nodes.enterprise);
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-bundles-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const keys = new Map([
    ['plant-a', plant.publicKey],
    ['enterprise', enterprise.publicKey],
  ]);
  const keyOf: KeyOf = (zone) => keys.get(zone);
  const append = (messageId: string, object: unknown = 1) =>
    plant.node.intake.append(
      { tenantId: 'default', authorize: () => {} },
      {
        fromZone: 'plant-a',
        toZone: 'enterprise',
        producedAt: 1,
        subject: 'order:1',
        predicate: 'is',
        messageId,
        objectJson: JSON.stringify(object),
      },
    );
  const putObject = async (key: string, bytes: Uint8Array, on = plant) => {
    async function* source() {
      yield bytes;
    }
    const name = { bucket: 'files', key };
    return { ...name, ...(await on.objects.put({ ...name, tenantId: 'default' }, source())) };
  };
  const exportOptions = {
    store: plant.store,
    objects: plant.objects,
    stream: out,
    key: { id: 'k1', privateKey: plant.privateKey },
    chunkFacts: 10,
  };
  const importOptions: ImportOptions = {
    store: enterprise.store,
    objects: enterprise.objects,
    zone: 'enterprise',
    tenantId: 'default',
    keyOf,
    sign: (receipt) => signReceipt(receipt, { id: 'k1', privateKey: enterprise.privateKey }),
  };
  const path = (name: string): string => join(folder, name);
  return {
    plant,
    enterprise,
    folder,
    path,
    keyOf,
    append,
    putObject,
    exportOptions,
    importOptions,
    send: (name: string, range?: ExportRange) => exportBundle(exportOptions, path(name), range),
    take: (name: string, changes: Partial<ImportOptions> = {}) =>
      importBundle({ ...importOptions, ...changes }, path(name)),
    sendReceipts: (name: string, after = 0) =>
      exportReceipts(
        { store: enterprise.store, stream: into, key: { id: 'k1', privateKey: enterprise.privateKey } },
        path(name),
        { after },
      ),
    takeReceipts: (name: string) =>
      importReceipts(
        { store: plant.store, zone: 'plant-a', tenantId: 'default', keyOf, instance: 'bundles' },
        path(name),
      ),
    sent: () => plant.store.read(out, { after: 0, limit: 10_000, maxBytes: 1e9 }),
    received: () => enterprise.store.read(into, { after: 0, limit: 10_000, maxBytes: 1e9 }),
  };
}

export const essence = (entries: readonly StoredEntry[]) =>
  entries.map(({ offset, key, digest, text }) => [offset, key, digest, text]);
