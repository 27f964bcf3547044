/**
 * Collection of orphans beside producers that put an object and then append a fact that names it. There is no grace: an object
 * may go between the two, and the append is refused then. An append that was answered has its object, whatever happens. What each
 * order of the steps leads to is tested one after another; how often they meet in the races is chance, and not tested.
 * TEST_OBJECT_RACES=10000 runs more of them.
 */
import { describe, expect, onTestFinished, test } from 'vitest';
import { Zones } from '../../../../src/apps/boundary/domain/zones.ts';
import { Intake } from '../../../../src/apps/boundary/intake.ts';
import { Admission } from '../../../../src/apps/boundary/limits/admission.ts';
import { defaultLimits } from '../../../../src/apps/boundary/limits/fill.ts';
import { collectOrphans } from '../../../../src/apps/boundary/objects/collect.ts';
import { Objects } from '../../../../src/apps/boundary/objects/objects.ts';
import { PostgresFactStore } from '../../../../src/apps/boundary/store/postgres/store.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import { boundaryDatabase } from '../support.ts';
import { chunks, digestOf, whole } from './bytes.ts';
import { openBlobs, type Place, type StorageName, storages } from './storage.ts';

const total = Number(process.env.TEST_OBJECT_RACES ?? 400);
const producers = 8;
/** So many store the same bytes at about the same time, some of them under the same name. */
const alike = 2;
const tenantId = 'default';
const bucket = 'files';
const out = { tenantId, buffer: 'store', from: 'plant-a', to: 'enterprise' } as const;
/** An append takes less, also on a machine that is very busy: what rests on it is not part of the race. */
const holdGraceMs = 60_000;
const caller = { tenantId, authorize: () => {} };
const later = 3_600_000;

/** What a process of the node has: connections to database and storage of its own. */
async function partsOn(url: string, place: Place) {
  const [database, blobs] = await Promise.all([Database.connect({ url, poolSize: 6 }), openBlobs(place)]);
  const store = new PostgresFactStore(database);
  onTestFinished(async () => {
    await Promise.all([store.stop(), blobs.stop()]);
    await database.close();
  });
  const zones = new Zones(['plant-a', 'enterprise']);
  const objects = new Objects({ database, blobs, maxBytes: 1024 ** 2 });
  const admission = new Admission({ store, limits: defaultLimits, freeBytes: async () => undefined });
  const zone = zones.resolve('plant-a', 'zone');
  const intake = new Intake({ zone, zones, store, objects, admission, holdGraceMs });
  return { database, blobs, store, objects, intake };
}

const factOf = (messageId: string, key: string, digest: string) => ({
  messageId,
  fromZone: 'plant-a',
  toZone: 'enterprise',
  producedAt: 1,
  subject: 'order:1',
  predicate: 'has_state',
  objectJson: JSON.stringify({ bucket, key, digest }),
});

interface Named {
  readonly key: string;
  readonly content: Buffer;
}

describe.each<StorageName>(['files', 'jetstream'])('objects on %s', (kind) => {
  test('BND-5, BND-6: an object that was collected before its fact is refused, and one that a fact names stays', async () => {
    const storage = await storages[kind]();
    onTestFinished(() => storage.stop());
    const { url } = await boundaryDatabase();
    const [producing, collecting] = await Promise.all([1, 2].map(() => partsOn(url, storage.place)));
    if (!producing || !collecting) throw new Error('two processes are needed');
    const { objects, intake } = producing;
    const { database, blobs, store } = collecting;
    // Whatever is stored is old enough, also in the same millisecond.
    const graceMs = -later;
    const collect = () =>
      collectOrphans({ database, blobs, store, holdGraceMs, uploadGraceMs: later, graceMs });
    const content = Buffer.from('content');
    const put = () => objects.put({ tenantId, bucket, key: 'a' }, chunks(content));
    const append = (digest: string) => intake.append(caller, factOf('m-1', 'a', digest));
    const isStored = async (): Promise<boolean> => {
      const { bytes } = await objects.get({ tenantId, bucket, key: 'a' });
      return (await whole(bytes)).equals(content);
    };

    const { digest } = await put();
    expect(await collect()).toMatchObject({ objects: 1, blobs: 1 });
    expect(await storage.left()).toEqual([]);
    await expect(append(digest)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      reason: 'object_not_stored',
    });
    expect((await store.state(out))?.last ?? 0).toBe(0);

    await put();
    expect(await append(digest)).toMatchObject({ offset: 1 });
    // The same bytes under a name that no fact names: the name goes, the bytes stay.
    await objects.put({ tenantId, bucket, key: 'b' }, chunks(content));
    expect(await collect()).toMatchObject({ objects: 1, blobs: 0 });
    expect(await isStored()).toBe(true);
  });

  test('BND-5, BND-6: collection beside put-then-append never deletes what a fact names', async () => {
    const random = seededRandom();
    const storage = await storages[kind]();
    onTestFinished(() => storage.stop());
    const { url } = await boundaryDatabase();
    const [first, second, collecting] = await Promise.all([1, 2, 3].map(() => partsOn(url, storage.place)));
    if (!first || !second || !collecting) throw new Error('three processes are needed');

    const counts = { objects: 0, blobs: 0, refused: 0, left: 0 };
    const collect = async (): Promise<void> => {
      const { database, blobs, store } = collecting;
      const options = { database, blobs, store, holdGraceMs, uploadGraceMs: later, graceMs: 0 };
      const collected = await collectOrphans(options);
      counts.objects += collected.objects;
      counts.blobs += collected.blobs;
    };
    let isDone = false;
    const collector = async (): Promise<void> => {
      while (!isDone) await collect();
    };

    const appended: Named[] = [];
    const putThenAppend = async ({ objects, intake }: typeof first, n: number): Promise<void> => {
      const content = Buffer.from(`content ${Math.floor(n / alike)}`);
      // Some names are those of other producers as well.
      const key = random.chance(0.3) ? `shared-${Math.floor(n / alike)}` : `own-${n}`;
      const { digest } = await objects.put({ tenantId, bucket, key }, chunks(content));
      if (random.chance(0.4)) {
        counts.left += 1;
        return;
      }
      try {
        await intake.append(caller, factOf(`m-${n}`, key, digest));
        appended.push({ key, content });
      } catch (error) {
        expect(error).toMatchObject({ code: 'FAILED_PRECONDITION', reason: 'object_not_stored' });
        counts.refused += 1;
      }
    };
    let next = 0;
    const producer = async (id: number): Promise<void> => {
      while (next < total) {
        next += 1;
        await putThenAppend(id % 2 === 0 ? first : second, next);
      }
    };
    const collectors = Promise.all([collector(), collector()]);
    await Promise.all(Array.from({ length: producers }, (_, id) => producer(id))).finally(async () => {
      isDone = true;
      await collectors;
    });
    await collect();

    console.info(`${kind}: ${JSON.stringify({ total, appended: appended.length, ...counts })}`);
    expect(appended.length).toBeGreaterThan(0);
    expect(appended.length + counts.refused + counts.left).toBe(total);

    for (const { key, content } of appended) {
      const { info, bytes } = await first.objects.get({ tenantId, bucket, key });
      expect(info.digest).toBe(digestOf(content));
      expect((await whole(bytes)).toString()).toBe(content.toString());
    }
    const state = await first.store.state(out);
    expect(state?.last).toBe(appended.length);
  }, 1_800_000);
});
