import { createHash, randomBytes } from 'node:crypto';
import { globSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Collected, collectOrphans } from '../../../src/apps/boundary/objects/collect.ts';
import { FileBlobs } from '../../../src/apps/boundary/objects/files.ts';
import { Objects } from '../../../src/apps/boundary/objects/objects.ts';
import type { Database } from '../../../src/engine/database/database.ts';
import { fact } from './store/facts.ts';
import { boundaryDatabase, storeOn } from './support.ts';

const name = { tenantId: 'default', bucket: 'batch-files', key: 'order-2026-03-06-001.pdf' };
const digestOf = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

async function* chunks(bytes: Uint8Array, size = 1000): AsyncIterable<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function* cutAfter(bytes: Uint8Array, count: number): AsyncIterable<Uint8Array> {
  yield* chunks(bytes.subarray(0, count));
  throw new Error('the line was cut');
}

async function whole(bytes: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of bytes) parts.push(part);
  return Buffer.concat(parts);
}

async function scene(maxBytes = 1024 ** 3, room?: () => Promise<number>) {
  const { database } = await boundaryDatabase();
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-objects-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const blobs = await FileBlobs.open(folder);
  const store = storeOn(database);
  const objects = new Objects({ database, blobs, maxBytes, ...(room && { room }) });
  const collect = (graceMs = 0, holdGraceMs = 0, uploadGraceMs = graceMs): Promise<Collected> =>
    collectOrphans({ database, blobs, store, uploadGraceMs, graceMs, holdGraceMs });
  const files = () => globSync('**/*', { cwd: folder, withFileTypes: true }).filter((each) => each.isFile());
  return { database, folder, blobs, store, objects, collect, files };
}

/** Later than everything that was written: times of rows and files are not compared with less than they have. */
async function later(database: Database): Promise<void> {
  await database.query('select pg_sleep(0.02)');
}

describe('objects', () => {
  test('BND-5: an object is stored once, with its digest and size, and read whole or in part', async () => {
    const { objects, files } = await scene();
    const bytes = randomBytes(100_000);
    const stored = { digest: digestOf(bytes), size: bytes.length };
    expect(await objects.put(name, chunks(bytes), { mediaType: 'application/pdf' })).toEqual(stored);
    expect(await objects.put(name, chunks(bytes, 777), { digest: stored.digest })).toEqual(stored);
    expect(await objects.put({ ...name, key: 'same bytes' }, chunks(bytes))).toEqual(stored);
    expect(files()).toHaveLength(1);
    const { info, bytes: read } = await objects.get(name);
    expect(info).toEqual({ ...stored, mediaType: 'application/pdf' });
    expect(await whole(read)).toEqual(bytes);
    const part = await objects.get(name, { from: 99_990, count: 100 });
    expect(await whole(part.bytes)).toEqual(bytes.subarray(99_990));
    expect(await whole((await objects.get(name, { from: 100_000 })).bytes)).toHaveLength(0);
    await expect(objects.get(name, { from: 100_001 })).rejects.toMatchObject({ code: 'OUT_OF_RANGE' });
    await expect(objects.get({ ...name, tenantId: 'acme' })).rejects.toMatchObject({ code: 'NOT_FOUND' });
    const empty = { ...name, key: 'empty' };
    expect(await objects.put(empty, chunks(Buffer.alloc(0)))).toMatchObject({ size: 0 });
    expect(await whole((await objects.get(empty)).bytes)).toHaveLength(0);
  });

  test('BND-5: other bytes under a key, bytes that are not as announced or too many leave nothing', async () => {
    const { objects, files } = await scene(10_000);
    await objects.put(name, chunks(Buffer.from('first')));
    await expect(objects.put(name, chunks(Buffer.from('second')))).rejects.toMatchObject({
      code: 'ALREADY_EXISTS',
      reason: 'conflicting_object',
    });
    const other = { ...name, key: 'other' };
    const announced = { digest: digestOf(Buffer.from('a')) };
    await expect(objects.put(other, chunks(Buffer.from('b')), announced)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      reason: 'digest_mismatch',
    });
    await expect(objects.put(other, chunks(randomBytes(10_001)))).rejects.toThrow('more than 10000 bytes');
    for (const bad of [
      { bucket: '../x' },
      { bucket: '' },
      { key: '' },
      { key: 'a\0' },
      { key: 'x'.repeat(513) },
    ])
      await expect(objects.put({ ...name, ...bad }, chunks(randomBytes(1)))).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      });
    await expect(objects.info(other)).rejects.toMatchObject({ reason: 'no_such_object' });
    expect(await whole((await objects.get(name)).bytes)).toEqual(Buffer.from('first'));
    expect(files()).toHaveLength(1);
  });

  test('BND-9: an object that would take the reserve of the disk is refused, at once or while it comes, and leaves nothing', async () => {
    let room = 10;
    const { objects, files } = await scene(1024 ** 3, async () => room);
    const full = { code: 'RESOURCE_EXHAUSTED', reason: 'disk_full' };
    let isRead = false;
    async function* source() {
      isRead = true;
      yield Buffer.from('x');
    }
    await expect(objects.put(name, source(), { size: 11 })).rejects.toMatchObject(full);
    expect(isRead).toBe(false);
    // How much comes is not known, and others take the space meanwhile.
    async function* endless() {
      for (;;) {
        yield Buffer.alloc(1024 ** 2);
        room = 0;
      }
    }
    await expect(objects.put(name, endless())).rejects.toMatchObject(full);
    expect([files(), await objects.resumable(name)]).toEqual([[], 0]);
    await expect(objects.put(name, chunks(Buffer.from('x')))).rejects.toMatchObject(full);
    room = 10;
    await objects.put(name, chunks(Buffer.from('0123456789')), { size: 10 });
  });

  test('BND-5: 16 uploads of one name at once: those with the same bytes agree, the others are refused', async () => {
    const { objects, files } = await scene();
    const versions = [randomBytes(5000), randomBytes(5000)] as const;
    const outcomes = await Promise.allSettled(
      Array.from({ length: 16 }, (_, i) => objects.put(name, chunks(versions[i % 2 === 0 ? 0 : 1]))),
    );
    const { digest } = await objects.info(name);
    outcomes.forEach((outcome, i) => {
      const isSame = digestOf(versions[i % 2 === 0 ? 0 : 1]) === digest;
      expect(outcome.status).toBe(isSame ? 'fulfilled' : 'rejected');
    });
    expect(digestOf(await whole((await objects.get(name)).bytes))).toBe(digest);
    expect(files()).toHaveLength(1);
  });

  test('BND-5: an upload that is cut off is not visible, and goes on where it was', async () => {
    const { objects, collect, files, database } = await scene();
    const bytes = randomBytes(50_000);
    const digest = digestOf(bytes);
    await expect(objects.put(name, cutAfter(bytes, 20_000))).rejects.toThrow('the line was cut');
    await expect(objects.info(name)).rejects.toMatchObject({ code: 'NOT_FOUND' });
    expect(await objects.resumable(name)).toBe(20_000);
    const rest = () => chunks(bytes.subarray(20_000));
    await expect(objects.put(name, rest(), { from: 20_000 })).rejects.toMatchObject({
      reason: 'digest_needed',
    });
    await expect(objects.put(name, rest(), { from: 19_999, digest })).rejects.toMatchObject({
      reason: 'wrong_start',
      details: { kept: 20_000 },
    });
    // Cut once more; then two clients continue it: one of them does.
    const further = cutAfter(bytes.subarray(20_000), 5_000);
    await expect(objects.put(name, further, { from: 20_000, digest })).rejects.toThrow('the line was cut');
    const last = () => chunks(bytes.subarray(25_000));
    const both = await Promise.allSettled([
      objects.put(name, last(), { from: 25_000, digest }),
      objects.put(name, last(), { from: 25_000, digest }),
    ]);
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(await whole((await objects.get(name)).bytes)).toEqual(bytes);
    // One that is given up goes after the grace time.
    await expect(objects.put({ ...name, key: 'x' }, cutAfter(bytes, 1000))).rejects.toThrow();
    expect((await collect(3_600_000)).uploads).toBe(0);
    await later(database);
    expect((await collect()).uploads).toBe(1);
    expect(files()).toHaveLength(0);
  });

  test('BND-5: memory stays flat: no chunk is asked for before the one before it is written', async () => {
    const { objects } = await scene();
    const chunk = randomBytes(1024 * 1024);
    let unread = 0;
    async function* large(): AsyncIterable<Uint8Array> {
      for (let n = 0; n < 64; n++) {
        unread += 1;
        expect(unread).toBe(1);
        yield chunk;
        unread -= 1;
      }
    }
    const { size } = await objects.put(name, large());
    expect(size).toBe(64 * chunk.length);
    const { bytes } = await objects.get(name);
    let read = 0;
    for await (const part of bytes) {
      expect(part.length).toBeLessThanOrEqual(1024 * 1024);
      read += part.length;
    }
    expect(read).toBe(size);
  });

  test('BND-5: bytes that were damaged on the disk are not handed out as good', async () => {
    const { objects, folder, files } = await scene();
    await objects.put(name, chunks(Buffer.from('good')));
    const [file] = files();
    await writeFile(join(file?.parentPath ?? folder, file?.name ?? ''), 'evil');
    await expect(whole((await objects.get(name)).bytes)).rejects.toThrow('are damaged');
  });
});

describe('facts and their objects', () => {
  const reference = (digest: string) =>
    ({ ...name, digest, buffer: 'store', from: 'plant-a', to: 'enterprise', messageId: 'm1' }) as const;

  test('BND-6: a fact whose object is not stored, or is another one, cannot be appended', async () => {
    const { objects } = await scene();
    const digest = digestOf(Buffer.from('a'));
    const refused = (reason: string) => ({ code: 'FAILED_PRECONDITION', reason });
    await expect(objects.hold(reference(digest))).rejects.toMatchObject(refused('object_not_stored'));
    await objects.put(name, chunks(Buffer.from('a')));
    const outcomes = await Promise.allSettled([
      objects.hold(reference(digest)),
      objects.hold(reference(digest)),
      objects.hold(reference(digestOf(Buffer.from('b')))),
      objects.hold({ ...reference(digest), tenantId: 'acme' }),
    ]);
    expect(outcomes.map((each) => (each.status === 'rejected' ? each.reason.reason : 'held'))).toEqual([
      'held',
      'held',
      'object_differs',
      'object_not_stored',
    ]);
  });

  test('BND-5: an object goes when no fact names it any more, and not before', async () => {
    const { objects, store, collect, files, database } = await scene();
    const stream = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' } as const;
    const { digest } = await objects.put(name, chunks(Buffer.from('a')));
    await objects.put({ ...name, tenantId: 'acme' }, chunks(Buffer.from('a')));
    await later(database);
    expect(await collect(3_600_000)).toMatchObject({ objects: 0, blobs: 0 });
    await objects.hold(reference(digest));
    await store.append(stream, fact('m1', { reference: { bucket: name.bucket, key: name.key, digest } }));
    await later(database);
    // The other tenant's name goes; the bytes stay.
    expect(await collect()).toEqual({ uploads: 0, holds: 0, objects: 1, blobs: 0 });
    expect(await whole((await objects.get(name)).bytes)).toEqual(Buffer.from('a'));
    await store.trim(stream, 1);
    expect(await collect(0, 3_600_000)).toMatchObject({ holds: 0, objects: 0 });
    expect(await collect()).toEqual({ uploads: 0, holds: 1, objects: 1, blobs: 1 });
    expect(files()).toHaveLength(0);
  });

  test('BND-5: an old orphan that is put again is new: it does not go between put and append', async () => {
    const { objects, collect, database } = await scene();
    const both = [name, { ...name, key: 'not put again' }];
    for (const each of both) await objects.put(each, chunks(Buffer.from('a')));
    await database.query(`update boundary.objects set stored_at = now() - interval '2 days'`);
    await objects.put(name, chunks(Buffer.from('a')));
    expect(await collect(3_600_000)).toMatchObject({ objects: 1 });
    expect(await objects.info(name)).toMatchObject({ size: 1 });
    await expect(objects.info({ ...name, key: 'not put again' })).rejects.toMatchObject({
      code: 'NOT_FOUND',
    });
  });

  test('BND-5: what a process left aside that died while it removed it is put back', async () => {
    const { objects, blobs, folder } = await scene();
    const { digest } = await objects.put(name, chunks(Buffer.from('a')));
    await expect(
      blobs.remove(digest, () => Promise.reject(new Error('the database is gone'))),
    ).rejects.toThrow('the database is gone');
    expect(await blobs.has(digest)).toBe(true);
    // As if it had died in the middle.
    const asked = Promise.withResolvers<boolean>();
    const removal = blobs.remove(digest, () => asked.promise);
    await expect.poll(() => readdir(join(folder, 'removing'))).toHaveLength(1);
    expect(await blobs.has(digest)).toBe(false);
    await FileBlobs.open(folder);
    expect(await whole((await objects.get(name)).bytes)).toEqual(Buffer.from('a'));
    asked.resolve(false);
    await removal;
    expect(await blobs.has(digest)).toBe(true);
  });
});
