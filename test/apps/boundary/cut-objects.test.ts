import { randomBytes } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { describe, expect, test } from 'vitest';
import { pullOnce } from '../../../src/apps/boundary/handoff/pull.ts';
import { pushOnce } from '../../../src/apps/boundary/handoff/push.ts';
import { collectOrphans } from '../../../src/apps/boundary/objects/collect.ts';
import { FileBlobs } from '../../../src/apps/boundary/objects/files.ts';
import { BoundaryService } from '../../../src/apps/boundary/proto/tallyman/boundary/v1/boundary_pb.ts';
import { redriveAll } from '../../../src/apps/boundary/redrive.ts';
import { CutProxy } from './cut-proxy.ts';
import { fileOf, whole } from './objects/bytes.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

const MiB = 1024 * 1024;
const size = 12 * MiB;
/** What one connection carries: less than the object. */
const perConnection = 5 * MiB;
const signal = new AbortController().signal;

type Zones = Awaited<ReturnType<typeof twoZones | typeof pulling>>;

/** A peer behind a line that is cut again and again. */
async function peerBehind(
  proxy: CutProxy,
  zone: 'plant-a' | 'enterprise',
  { authority }: Pick<Zones, 'authority'>,
) {
  const { key, cert } = await authority.issue({ uris: [`spiffe://example/zone/${zone}/peer`] });
  const nodeOptions = { key, cert, ca: authority.ca };
  return createClient(
    BoundaryService,
    createGrpcTransport({ baseUrl: `https://localhost:${proxy.port}`, nodeOptions }),
  );
}

/** Tries again after each cut, as a hand-off does. */
async function untilCarried(step: () => Promise<number>): Promise<void> {
  for (let tries = 1; ; tries += 1)
    try {
      if ((await step()) > 0) return;
    } catch (error) {
      if (tries === 10) throw error;
    }
}

async function expectCarried({ enterprise }: Pick<Zones, 'enterprise'>, wanted: Buffer): Promise<void> {
  const { bytes } = await enterprise.objects.get({ tenantId: 'default', bucket: 'files', key: 'large' });
  const parts: Uint8Array[] = [];
  for await (const part of bytes) parts.push(part);
  expect(Buffer.concat(parts).equals(wanted)).toBe(true);
  expect(await enterprise.store.quarantined(into, { after: 0, limit: 10 })).toEqual([]);
  expect((await enterprise.store.frontier(into))?.offset).toBe(1);
}

describe('a large object over a line that is cut more often than it takes', () => {
  test('BND-5, BND-8: by push it goes on where it broke off', async () => {
    const zones = await twoZones();
    const bytes = randomBytes(size);
    await zones.append('m1', await zones.putObject('large', bytes));
    const proxy = await CutProxy.before(zones.first.port, perConnection);
    const peer = await peerBehind(proxy, 'plant-a', zones);
    await untilCarried(() => pushOnce({ ...zones.options, peer }, 0, signal));
    await expectCarried(zones, bytes);
    expect(proxy.cuts).toBeGreaterThan(1);
    expect(proxy.bytes).toBeLessThan(size + 2 * MiB);
  });

  test('BND-5, BND-8: by pull it goes on where it broke off', async () => {
    const zones = await pulling();
    const bytes = randomBytes(size);
    await zones.append('m1', await zones.putObject('large', bytes));
    const { port } = await zones.plant.serve(zones.tls);
    const proxy = await CutProxy.before(port, perConnection);
    const peer = await peerBehind(proxy, 'enterprise', zones);
    await untilCarried(() => pullOnce({ ...zones.options, peer }, 0, signal));
    await expectCarried(zones, bytes);
    expect(proxy.cuts).toBeGreaterThan(1);
    expect(proxy.bytes).toBeLessThan(size + 2 * MiB);
  });

  test('BND-5: a rest of other bytes under the same name does not keep it from crossing, by push and by pull', async () => {
    // Less than the object, and more.
    for (const by of ['push', 'pull'] as const)
      for (const left of [2 * MiB, 4 * MiB]) {
        const zones = by === 'push' ? await twoZones() : await pulling();
        const bytes = randomBytes(3 * MiB);
        await zones.append('m1', await zones.putObject('large', bytes));
        const name = { tenantId: 'default', bucket: 'files', key: 'large' };
        const { objects } = zones.enterprise;
        await expect(objects.put(name, brokenOff(left))).rejects.toThrow('broke off');
        expect(await objects.resumable(name)).toBe(left);
        await untilCarried('pull' in zones ? zones.pull : zones.push);
        await expectCarried(zones, bytes);
      }
  });
});

async function* brokenOff(bytes: number): AsyncIterable<Uint8Array> {
  yield randomBytes(bytes);
  throw new Error('it broke off');
}

test('BND-8: an object that the receiver has collected before its fact came is sent again', async () => {
  const zones = await twoZones();
  const { enterprise, append, putObject, push, options } = zones;
  await append('m1', await putObject('x', Buffer.from('bytes')));
  const cut = { ...options.peer, deliverFacts: () => Promise.reject(new Error('cut')) };
  await expect(pushOnce({ ...options, peer: cut }, 0, signal)).rejects.toThrow('cut');
  // The line is away for longer than the grace time.
  await enterprise.database.query('select pg_sleep(0.02)');
  const { database, store, folder } = enterprise;
  const grace = { uploadGraceMs: 0, graceMs: 0, holdGraceMs: 0 };
  const blobs = await FileBlobs.open(folder);
  expect(await collectOrphans({ database, blobs, store, ...grace })).toMatchObject({ objects: 1, blobs: 1 });
  await expect(push()).rejects.toThrow('object_not_stored');
  expect(await push()).toBe(1);
  expect((await zones.plant.store.consumers(out))[0]?.cursor).toBe(1);
});

describe('the bytes of an object are gone where they were stored', () => {
  for (const by of ['push', 'pull'] as const)
    test(`BND-8: by ${by} its fact goes into quarantine on both sides, and a redrive brings it when they are there again`, async () => {
      const zones = by === 'push' ? await twoZones() : await pulling();
      const { plant, enterprise, append, putObject } = zones;
      const step = 'pull' in zones ? zones.pull : zones.push;
      const contents = { gone: 10, short: 1000, damaged: 2 * MiB, whole: 10 };
      const bytes = new Map(Object.entries(contents).map(([key, length]) => [key, randomBytes(length)]));
      const files = new Map<string, string>();
      for (const [key, content] of bytes) {
        const reference = await putObject(key, content);
        files.set(key, fileOf(plant.folder, reference.digest));
        await append(key, reference);
      }
      await rm(files.get('gone') ?? '');
      await writeFile(files.get('short') ?? '', 'x');
      await writeFile(files.get('damaged') ?? '', randomBytes(contents.damaged));
      expect(await step()).toBe(4);
      for (const [{ store }, stream] of [[plant, out] as const, [enterprise, into] as const])
        expect(
          (await store.quarantined(stream, { after: 0, limit: 10 })).map((each) => [
            each.messageId,
            each.reason,
            each.message.startsWith(`object "${each.messageId}" in bucket "files" cannot be read: `),
          ]),
        ).toEqual(['gone', 'short', 'damaged'].map((id) => [id, 'object_lost', true]));
      expect((await enterprise.store.frontier(into))?.offset).toBe(4);
      for (const [key, content] of bytes) await putObject(key, content);
      const { store, objects, admission } = plant;
      expect(await redriveAll({ store, objects, admission, stream: out }, { reason: 'object_lost' })).toBe(3);
      await untilCarried(step);
      expect(await enterprise.store.quarantined(into, { after: 0, limit: 10, isOpen: true })).toEqual([]);
      for (const [key, content] of bytes) {
        const { bytes: read } = await enterprise.objects.get({ tenantId: 'default', bucket: 'files', key });
        expect((await whole(read)).equals(content)).toBe(true);
      }
    });

  test('BND-8: a disk that is not mounted is trouble that names the fact, and puts nothing into quarantine', async () => {
    const { plant, append, putObject, push } = await twoZones();
    await append('m1', await putObject('x', Buffer.from('bytes')));
    const blobs = join(plant.folder, 'blobs');
    await rename(blobs, `${blobs}.elsewhere`);
    await expect(push()).rejects.toThrow(
      /object "x" in bucket "files", which fact 1 names, cannot be read here: the folder .* is gone or empty/,
    );
    await rename(`${blobs}.elsewhere`, blobs);
    expect(await push()).toBe(1);
    expect(await plant.store.quarantined(out, { after: 0, limit: 10 })).toEqual([]);
  });
});
