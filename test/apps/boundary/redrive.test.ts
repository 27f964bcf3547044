import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { isGap } from '../../../src/apps/boundary/domain/record.ts';
import { collectOrphans } from '../../../src/apps/boundary/objects/collect.ts';
import { FileBlobs } from '../../../src/apps/boundary/objects/files.ts';
import { dropQuarantined, redrive, redriveAll } from '../../../src/apps/boundary/redrive.ts';
import { storedFact } from '../../../src/apps/boundary/rpc/messages.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

type Zones = Awaited<ReturnType<typeof twoZones>>;

const optionsOf = ({ plant }: Pick<Zones, 'plant'>) => ({
  store: plant.store,
  objects: plant.objects,
  admission: plant.admission,
  stream: out,
});

const page = { after: 0, limit: 100 };

const received = async ({ enterprise, all }: Pick<Zones, 'enterprise' | 'all'>) =>
  (await all(enterprise, into)).map(({ offset, record }) =>
    isGap(record)
      ? [offset, `gap ${record.gap.reason}`]
      : [offset, record.messageId, record.standsFor?.offset],
  );

describe('redrive', () => {
  test('BND-8: too large over the line: the poison fact ends in quarantine, the stream goes on, redrive repairs it', async () => {
    const zones = await twoZones();
    const { plant, enterprise, append, push, all } = zones;
    enterprise.receiveLimits.maxRecordBytes = 2000;
    const large = 'x'.repeat(5000);
    await append('a');
    await append('poison', large);
    await append('b');
    expect(await push()).toBe(3);
    expect(await received(zones)).toEqual([
      [1, 'a', undefined],
      [2, 'gap too_large'],
      [3, 'b', undefined],
    ]);
    const open = { ...page, isOpen: true };
    for (const kept of [
      await enterprise.store.quarantined(into, open),
      await plant.store.quarantined(out, open),
    ])
      expect(kept).toMatchObject([{ offset: 2, messageId: 'poison', reason: 'too_large' }]);

    // Too early: the cause is still there. The later fact is in quarantine in its turn, and the stream goes on.
    const early = await redrive(optionsOf(zones), { offset: 2 });
    expect(early).toMatchObject({ offset: 4, existing: false });
    expect(await redrive(optionsOf(zones), { offset: 2 })).toEqual({ ...early, existing: true });
    await append('c');
    expect(await push()).toBe(2);
    expect((await received(zones)).slice(3)).toEqual([
      [4, 'gap too_large'],
      [5, 'c', undefined],
    ]);
    expect(await enterprise.store.quarantined(into, open)).toHaveLength(2);

    // The cause is gone.
    enterprise.receiveLimits.maxRecordBytes = 1024 * 1024;
    expect(await redriveAll(optionsOf(zones), { reason: 'too_large' })).toBe(1);
    expect(await redriveAll(optionsOf(zones))).toBe(0);
    expect(await push()).toBe(1);
    const last = (await all(enterprise, into)).at(-1);
    const { epoch = '' } = (await plant.store.state(out)) ?? {};
    expect(last).toMatchObject({
      offset: 6,
      record: {
        messageId: `redrive:${epoch}:4`,
        object: JSON.stringify(large),
        standsFor: { epoch, offset: 2, messageId: 'poison' },
      },
    });
    // As consumers get it.
    expect(last && storedFact(last, false).standsFor).toMatchObject({
      epoch,
      offset: 2n,
      messageId: 'poison',
      isDropped: false,
    });
    // Both sides know; the gap records stay.
    expect(await enterprise.store.quarantined(into, open)).toEqual([]);
    expect(await plant.store.quarantined(out, open)).toEqual([]);
    expect(await enterprise.store.quarantined(into, page)).toMatchObject([
      { offset: 2, resolution: { how: 'redriven', by: 6 } },
      { offset: 4, resolution: { how: 'redriven', by: 6 } },
    ]);
    expect(await plant.store.quarantined(out, page)).toMatchObject([
      { offset: 2, resolution: { how: 'redriven', by: 4 } },
      { offset: 4, resolution: { how: 'redriven', by: 6 } },
    ]);
    expect((await received(zones)).map(([offset]) => offset)).toEqual([1, 2, 3, 4, 5, 6]);
    await expect(dropQuarantined(optionsOf(zones), { offset: 2 }, 'late')).rejects.toMatchObject({
      reason: 'already_resolved',
    });
    await expect(redrive(optionsOf(zones), { offset: 1 })).rejects.toMatchObject({
      reason: 'not_in_quarantine',
    });
  });

  test('BND-8: an object that is too large there does not block the stream, by push and by pull', async () => {
    for (const by of ['push', 'pull'] as const) {
      const nodes = { enterprise: { maxObjectBytes: 5000 } };
      const zones = by === 'push' ? await twoZones(nodes) : await pulling(nodes);
      const { plant, append, putObject } = zones;
      await append('a');
      await append('large', await putObject('large', randomBytes(6000)));
      await append('small', await putObject('small', randomBytes(4000)));
      expect(await ('pull' in zones ? zones.pull() : zones.push()), by).toBe(3);
      expect((await received(zones)).map(([, what]) => what)).toEqual(['a', 'gap too_large', 'small']);
      expect(await plant.store.quarantined(out, page)).toMatchObject([{ offset: 2, reason: 'too_large' }]);
    }
  });

  test('BND-8: after a conflict the operator accepts the fact under a new id, or drops it with a reason that both sides see', async () => {
    const zones = await twoZones();
    const { plant, enterprise, append, putObject, push, all } = zones;
    for (const key of ['one', 'two']) {
      await putObject(key, Buffer.from('theirs'), enterprise);
      await append(`poison ${key}`, await putObject(key, Buffer.from('ours')));
    }
    await push();
    expect(await plant.store.quarantined(out, page)).toHaveLength(2);
    // No fact there names the other object, so that it could be removed.
    await enterprise.database.query(`delete from boundary.objects where key = 'one'`);
    expect(await redrive(optionsOf(zones), { offset: 1 }, { as: 'corrected' })).toMatchObject({
      offset: 3,
      messageId: 'corrected',
    });
    const reason = 'the enterprise keeps its own file';
    const dropped = await dropQuarantined(optionsOf(zones), { offset: 2 }, reason);
    expect(await dropQuarantined(optionsOf(zones), { offset: 2 }, reason)).toEqual({
      ...dropped,
      existing: true,
    });
    await expect(redrive(optionsOf(zones), { offset: 2 })).rejects.toMatchObject({
      reason: 'already_resolved',
    });
    await push();
    const [third, fourth] = (await all(enterprise, into)).slice(2);
    expect(third?.record).toMatchObject({
      messageId: 'corrected',
      standsFor: { offset: 1, messageId: 'poison one' },
    });
    expect(fourth?.record).toMatchObject({
      subject: 'fact:poison two',
      predicate: 'was_dropped',
      object: expect.stringContaining(reason),
      standsFor: { offset: 2, messageId: 'poison two', isDropped: true },
    });
    for (const kept of [
      await enterprise.store.quarantined(into, page),
      await plant.store.quarantined(out, page),
    ])
      expect(kept).toMatchObject([
        { offset: 1, resolution: { how: 'redriven', by: 3 } },
        { offset: 2, resolution: { how: 'dropped', by: 4 } },
      ]);
    const { bytes } = await enterprise.objects.get({ tenantId: 'default', bucket: 'files', key: 'one' });
    const parts: Uint8Array[] = [];
    for await (const part of bytes) parts.push(part);
    expect(Buffer.concat(parts).toString()).toBe('ours');
  });

  test('BND-5: the object of a fact in quarantine is kept until it is resolved, also when the fact is trimmed', async () => {
    const zones = await twoZones();
    const { plant, enterprise, append, putObject, push } = zones;
    await putObject('taken', Buffer.from('theirs'), enterprise);
    await append('poison', await putObject('taken', Buffer.from('ours')));
    await push();
    await plant.store.trim(out, 1);
    const blobs = await FileBlobs.open(plant.folder);
    const collect = async () => {
      await plant.database.query('select pg_sleep(0.02)');
      const grace = { uploadGraceMs: 0, graceMs: 0, holdGraceMs: 0 };
      return collectOrphans({ database: plant.database, blobs, store: plant.store, ...grace });
    };
    expect(await collect()).toMatchObject({ holds: 0, objects: 0, blobs: 0 });
    await dropQuarantined(optionsOf(zones), { offset: 1 }, 'not needed');
    expect(await collect()).toMatchObject({ holds: 1, objects: 1, blobs: 1 });
  });
});
