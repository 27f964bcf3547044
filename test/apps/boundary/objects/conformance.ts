/** What every storage of objects must do (BND-5). A test has bytes of its own, so that all of them share one storage. */
import { spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Blobs } from '../../../../src/apps/boundary/objects/blobs.ts';
import { chunkBytes } from '../../../../src/apps/boundary/objects/jetstream/layout.ts';
import { Objects } from '../../../../src/apps/boundary/objects/objects.ts';
import { until } from '../../../support/until.ts';
import { boundaryDatabase } from '../support.ts';
import type { Task } from './blobs-process.ts';
import { bytesNamed, chunks, cutAfter, digestOf, hasBytes, publish, readAll, roomy, whole } from './bytes.ts';
import { openBlobs, type Storage } from './storage.ts';

/** Later than everything there is. */
const ever = (): Date => new Date(Date.now() + 3_600_000);

export function describeBlobs(name: string, open: () => Promise<Storage>): void {
  let storage: Storage;
  let blobs: Blobs;
  /** As another process of the node has it. */
  let other: Blobs;
  beforeAll(async () => {
    storage = await open();
    [blobs, other] = await Promise.all([openBlobs(storage.place), openBlobs(storage.place)]);
  });
  afterAll(async () => {
    await Promise.all([blobs?.stop(), other?.stop()]);
    await storage?.stop();
  });

  /** Another process; what it says, and its death. */
  const work = (task: Omit<Task, 'place'>) => {
    const said: string[] = [];
    const child = spawn(
      process.execPath,
      [`${import.meta.dirname}/blobs-process.ts`, JSON.stringify({ ...task, place: storage.place })],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    const exited = once(child, 'exit');
    createInterface({ input: child.stdout }).on('line', (line) => said.push(line));
    const kill = async (): Promise<void> => {
      child.kill('SIGKILL');
      await exited;
    };
    onTestFinished(kill);
    return { said, kill };
  };
  const visible = async (): Promise<string[]> => {
    const found: string[] = [];
    for await (const digest of blobs.olderThan(ever())) found.push(digest);
    return found;
  };
  const removeAll = async (): Promise<void> => {
    for (const digest of await visible()) await blobs.remove(digest, async () => false);
    await blobs.sweep(ever());
    await blobs.sweep(ever());
  };

  describe(`${name}: store and read`, () => {
    test('BND-5: bytes are invisible until they are published, and then for every process', async () => {
      const bytes = randomBytes(chunkBytes + 5);
      const staged = await blobs.stage(chunks(bytes), roomy);
      expect(staged).toMatchObject({ digest: digestOf(bytes), size: bytes.length });
      expect(await other.has(staged.digest)).toBe(false);
      await expect(readAll(other, staged.digest, bytes.length)).rejects.toThrow();
      await staged.publish();
      await staged.discard();
      expect(await other.has(staged.digest)).toBe(true);
      expect(await hasBytes(other, bytes)).toBe(true);
    });

    test('BND-5: what is discarded, or has too many bytes, leaves nothing', async () => {
      const before = await storage.count();
      const bytes = randomBytes(2 * chunkBytes);
      const staged = await blobs.stage(chunks(bytes), roomy);
      await staged.discard();
      const tooMany = blobs.stage(chunks(bytes), {
        maxBytes: bytes.length - 1,
        resume: { uploadId: 'x', from: 0 },
      });
      await expect(tooMany).rejects.toMatchObject({ reason: 'object_too_large' });
      expect(await blobs.staged('x')).toBe(0);
      expect(await blobs.has(staged.digest)).toBe(false);
      expect(await storage.count()).toBe(before);
    });

    test('BND-5: the same bytes, stored by 12 callers of two processes at once, are there once', async () => {
      const bytes = randomBytes(chunkBytes + 1);
      await publish(blobs, bytes);
      const before = await storage.count();
      await publish(other, bytes);
      expect(await storage.count()).toBe(before);
      const more = randomBytes(chunkBytes + 1);
      await Promise.all(Array.from({ length: 12 }, (_, i) => publish(i % 2 === 0 ? blobs : other, more)));
      // As much as the first one has needed.
      await blobs.remove(digestOf(bytes), async () => false);
      await blobs.sweep(ever());
      expect(await storage.count()).toBe(before);
      expect(await hasBytes(blobs, more)).toBe(true);
    });

    test('BND-5: every range has its bytes, also where chunks and the parts of a cut upload meet', async () => {
      const bytes = randomBytes(3 * chunkBytes + 17);
      const cuts = [chunkBytes + 700, 2 * chunkBytes + 1];
      const uploadId = randomUUID();
      for (const [i, cut] of cuts.entries()) {
        const from = cuts[i - 1] ?? 0;
        const source = cutAfter(bytes.subarray(from), cut - from);
        await expect(blobs.stage(source, { ...roomy, resume: { uploadId, from } })).rejects.toThrow(
          'was cut',
        );
      }
      const from = cuts.at(-1) ?? 0;
      const staged = await blobs.stage(chunks(bytes.subarray(from)), {
        ...roomy,
        resume: { uploadId, from },
      });
      await staged.publish();
      await staged.discard();
      const borders = [0, chunkBytes, ...cuts, (cuts[0] ?? 0) + chunkBytes, 2 * chunkBytes, bytes.length];
      for (const border of borders)
        for (const start of [border - 1, border, border + 1])
          for (const count of [0, 1, 2, chunkBytes + 1, bytes.length]) {
            const end = Math.min(start + count, bytes.length);
            if (start < 0 || start > end) continue;
            const read = await whole(other.read(staged.digest, { from: start, count: end - start }));
            if (!read.equals(bytes.subarray(start, end)))
              throw new Error(`bytes ${start} to ${end} are not what was stored`);
          }
      const empty = await publish(blobs, Buffer.alloc(0));
      expect(await readAll(other, empty, 0)).toHaveLength(0);
    });

    test('BND-5: no piece is asked for before there is room for it, and none that is handed out is large', async () => {
      const piece = randomBytes(chunkBytes);
      let asked = 0;
      let release = (): void => {};
      onTestFinished(() => release());
      async function* source(): AsyncIterable<Uint8Array> {
        // The upload has begun.
        release = await storage.holdWrites();
        for (asked = 1; asked <= 24; asked += 1) yield piece;
      }
      const staging = blobs.stage(source(), roomy);
      await until('it asks', () => asked > 0);
      await sleep(500);
      // Nothing of it is stored: these are in memory.
      expect(asked).toBeLessThanOrEqual(5);
      release();
      const staged = await staging;
      await staged.publish();
      await staged.discard();
      let read = 0;
      for await (const part of blobs.read(staged.digest, { from: 0, count: staged.size })) {
        expect(part.length).toBeLessThanOrEqual(chunkBytes);
        read += part.length;
      }
      expect(read).toBe(24 * chunkBytes);
      // A reader that leaves early ends it.
      for await (const part of blobs.read(staged.digest, { from: 0, count: staged.size })) {
        expect(part.length).toBeGreaterThan(0);
        break;
      }
    });

    test('BND-5: bytes with another digest than was announced are refused, and leave nothing', async () => {
      const { database } = await boundaryDatabase();
      const objects = new Objects({ database, blobs, maxBytes: 1024 ** 3 });
      const before = await storage.count();
      const object = { tenantId: 'default', bucket: 'files', key: 'a' };
      const wrong = objects.put(object, chunks(randomBytes(chunkBytes + 1)), {
        digest: digestOf(randomBytes(1)),
      });
      await expect(wrong).rejects.toMatchObject({ reason: 'digest_mismatch' });
      await expect(objects.info(object)).rejects.toMatchObject({ code: 'NOT_FOUND' });
      expect(await storage.count()).toBe(before);
    });
  });

  describe(`${name}: an upload that is cut off`, () => {
    test('BND-5: is invisible, and goes on in another process; of two that continue it, one does', async () => {
      const bytes = randomBytes(3 * chunkBytes);
      const uploadId = randomUUID();
      const kept = chunkBytes + 4321;
      const cut = blobs.stage(cutAfter(bytes, kept), { ...roomy, resume: { uploadId, from: 0 } });
      await expect(cut).rejects.toThrow('the line was cut');
      expect(await other.staged(uploadId)).toBe(kept);
      expect(await other.has(digestOf(bytes))).toBe(false);
      const wrong = other.stage(chunks(bytes), { ...roomy, resume: { uploadId, from: kept - 1 } });
      await expect(wrong).rejects.toMatchObject({ reason: 'wrong_start', details: { kept } });
      const both = await Promise.allSettled(
        [blobs, other].map((each) =>
          each.stage(chunks(bytes.subarray(kept)), { ...roomy, resume: { uploadId, from: kept } }),
        ),
      );
      expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
      for (const each of both)
        if (each.status === 'fulfilled') {
          expect(await other.staged(uploadId)).toBe(0);
          await each.value.publish();
          await each.value.discard();
        } else expect(each.reason).toMatchObject({ reason: 'wrong_start' });
      expect(await hasBytes(other, bytes)).toBe(true);
    });

    test('BND-5: can begin anew, and is swept when it was given up, also under the hands of its process', async () => {
      await removeAll();
      const bytes = randomBytes(2 * chunkBytes);
      const uploadId = randomUUID();
      const resume = { uploadId, from: 0 };
      await expect(blobs.stage(cutAfter(bytes, 100), { ...roomy, resume })).rejects.toThrow('was cut');
      const anew = await other.stage(chunks(bytes), { ...roomy, resume });
      expect(anew.digest).toBe(digestOf(bytes));
      await anew.discard();
      await expect(blobs.stage(cutAfter(bytes, 100), { ...roomy, resume })).rejects.toThrow('was cut');
      expect(await blobs.sweep(new Date(Date.now() - 3_600_000))).toBe(0);
      expect(await blobs.staged(uploadId)).toBe(100);
      // Staged by a process that is then paused, and not published in time.
      const late = await blobs.stage(chunks(bytes), {
        ...roomy,
        resume: { uploadId: randomUUID(), from: 0 },
      });
      expect(await other.sweep(ever())).toBeGreaterThan(0);
      expect(await blobs.staged(uploadId)).toBe(0);
      await expect(late.publish()).rejects.toThrow();
      await late.discard();
      expect(await blobs.has(late.digest)).toBe(false);
      await blobs.sweep(ever());
      expect(await storage.left()).toEqual([]);
    });

    test('BND-5: whose process is killed leaves nothing visible, and nothing at all after a sweep', async () => {
      await removeAll();
      const { said, kill } = work({ work: 'stage', name: randomUUID(), size: chunkBytes / 4 });
      await until('the upload is well under way', () => Number(said.at(-1) ?? 0) > 8 * chunkBytes);
      await kill();
      expect(await visible()).toEqual([]);
      expect(await storage.count()).toBeGreaterThan(0);
      await blobs.sweep(ever());
      await blobs.sweep(ever());
      expect(await storage.left()).toEqual([]);
    });
  });

  describe(`${name}: remove`, () => {
    test('BND-5: while it is asked nobody finds the blob; if it is needed, or that is not known, it is put back', async () => {
      const bytes = randomBytes(chunkBytes + 3);
      const digest = await publish(blobs, bytes);
      const found = (): Promise<boolean> => other.has(digest);
      const seen: boolean[] = [];
      const needed = async (): Promise<boolean> => {
        seen.push(await found());
        return true;
      };
      expect(await blobs.remove(digest, needed)).toBe(false);
      expect(await found()).toBe(true);
      const failing = blobs.remove(digest, () => Promise.reject(new Error('the database is gone')));
      await expect(failing).rejects.toThrow('the database is gone');
      expect(await hasBytes(other, bytes)).toBe(true);
      // Published again before it was decided: it stays.
      const asked = Promise.withResolvers<boolean>();
      const reached = Promise.withResolvers<void>();
      const removal = blobs.remove(digest, () => {
        reached.resolve();
        return asked.promise;
      });
      await reached.promise;
      await publish(other, bytes);
      asked.resolve(false);
      await removal;
      expect(await hasBytes(other, bytes)).toBe(true);
      const count = await storage.count();
      expect(await blobs.remove(digest, async () => false)).toBe(true);
      expect(await blobs.remove(digest, async () => false)).toBe(false);
      expect(seen).toEqual([false]);
      expect(await found()).toBe(false);
      expect(await storage.count()).toBeLessThan(count);
      expect(await publish(other, bytes)).toBe(digest);
      expect(await hasBytes(blobs, bytes)).toBe(true);
    });

    test('BND-5: only what was published before a time is old; publishing again makes it new', async () => {
      await removeAll();
      const bytes = randomBytes(100);
      const digest = await publish(blobs, bytes);
      const old = async (time: Date): Promise<string[]> => {
        const found: string[] = [];
        for await (const each of other.olderThan(time)) found.push(each);
        return found;
      };
      let time = new Date();
      expect(await old(new Date(Date.now() - 3_600_000))).toEqual([]);
      await until('it is older than a moment', async () => {
        time = new Date();
        return (await old(time)).includes(digest);
      });
      await publish(other, bytes);
      expect(await old(time)).toEqual([]);
    });

    test('BND-5: a process that is killed while it asks leaves the blob to be read, and to be removed', async () => {
      const bytes = randomBytes(chunkBytes + 3);
      const digest = await publish(blobs, bytes);
      const { said, kill } = work({ work: 'ask', name: '', size: 0, digest });
      await until('it is asked', () => said.includes(digest));
      expect(await blobs.has(digest)).toBe(false);
      await kill();
      const restarted = await openBlobs(storage.place);
      onTestFinished(() => restarted.stop());
      expect(await hasBytes(restarted, bytes)).toBe(true);
      expect(await blobs.has(digest)).toBe(true);
      const again = work({ work: 'ask', name: '', size: 0, digest });
      await until('it is asked again', () => again.said.includes(digest));
      await again.kill();
      const next = await openBlobs(storage.place);
      onTestFinished(() => next.stop());
      expect(await visible()).toContain(digest);
      expect(await next.remove(digest, async () => false)).toBe(true);
      expect(await blobs.has(digest)).toBe(false);
    });

    test('BND-5: a process that is killed in the middle of publishing, and of removing, leaves whole blobs or none', async () => {
      await removeAll();
      const size = chunkBytes + 10;
      const publisher = work({ work: 'publish', name: 'p', size });
      await until('many are published', () => publisher.said.length >= 40);
      await publisher.kill();
      const digests = new Map(publisher.said.map((each) => [digestOf(bytesNamed(each, size)), each]));
      const published = await visible();
      for (const digest of digests.keys()) expect(published).toContain(digest);
      for (const digest of published) expect(digestOf(await readAll(blobs, digest, size))).toBe(digest);

      const remover = work({ work: 'remove', name: 'r', size: 0 });
      await until('some are removed', () => remover.said.length >= 10);
      await remover.kill();
      const restarted = await openBlobs(storage.place);
      onTestFinished(() => restarted.stop());
      const left = await visible();
      for (const digest of left) {
        expect(remover.said).not.toContain(digest);
        // What the process sent last may have arrived after its death: then all of it is gone.
        const read = await readAll(restarted, digest, size).catch(() => undefined);
        if (read) expect(digestOf(read)).toBe(digest);
        else expect(await blobs.has(digest)).toBe(false);
      }
      await removeAll();
      expect(await storage.left()).toEqual([]);
    });
  });

  describe(`${name}: a restart`, () => {
    test('BND-5: loses nothing that was published, and an upload goes on across it', async () => {
      const size = chunkBytes + 10;
      const publisher = work({ work: 'publish', name: randomUUID(), size });
      await until('some are published', () => publisher.said.length >= 10);
      const bytes = randomBytes(12 * chunkBytes);
      let restarted = Promise.resolve();
      async function* source(): AsyncIterable<Uint8Array> {
        for await (const piece of chunks(bytes.subarray(0, 6 * chunkBytes))) yield piece;
        restarted = storage.restart();
        yield* chunks(bytes.subarray(6 * chunkBytes));
      }
      const staged = await blobs.stage(source(), roomy);
      await restarted;
      await staged.publish();
      await staged.discard();
      expect(await hasBytes(other, bytes)).toBe(true);
      const before = publisher.said.length;
      await until('it goes on', () => publisher.said.length >= before + 5);
      await publisher.kill();
      await storage.restart();
      for (const each of publisher.said) {
        const stored = bytesNamed(each, size);
        expect(await hasBytes(blobs, stored)).toBe(true);
      }
    });
  });
}
