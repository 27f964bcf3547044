import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { renameSync } from 'node:fs';
import { copyFile, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { type BundleManifest, names } from '../../../../src/apps/boundary/bundles/format.ts';
import { paddingOf, tarHeader } from '../../../../src/apps/boundary/bundles/tar.ts';
import { peekBundle } from '../../../../src/apps/boundary/bundles/walk.ts';
import type { BoundaryError } from '../../../../src/apps/boundary/domain/errors.ts';
import { peerConsumer } from '../../../../src/apps/boundary/handoff/source.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import { fileOf } from '../objects/bytes.ts';
import { essence, into, out, twoIslands } from './scene.ts';

type Islands = Awaited<ReturnType<typeof twoIslands>>;

async function some({ append, putObject }: Islands, prefix: string, count: number): Promise<void> {
  await append(`${prefix} object`, await putObject(`${prefix}.bin`, randomBytes(20_000)));
  await Promise.all(Array.from({ length: count - 1 }, (_, i) => append(`${prefix}${i}`, { i })));
}

/** Everything that an import could leave behind. */
async function leftBehind({ enterprise }: Islands) {
  const { rows } = await enterprise.database.query<{ objects: number; holds: number }>(
    'select (select count(*)::int from boundary.objects) as objects, (select count(*)::int from boundary.holds) as holds',
  );
  const { store } = enterprise;
  return {
    ...rows[0],
    frontier: await store.frontier(into),
    state: await store.state(into),
    receipts: (await store.receipts(into, { after: 0, limit: 1000 })).length,
    quarantined: (await store.quarantined(into, { after: 0, limit: 1000 })).length,
  };
}

const nothing = {
  objects: 0,
  holds: 0,
  frontier: undefined,
  state: undefined,
  receipts: 0,
  quarantined: 0,
};

describe('bundles', () => {
  test('BND-11: facts and objects cross in a file, once; the receipts that come back confirm them', async () => {
    const islands = await twoIslands();
    const { plant, enterprise, send, take, sendReceipts, takeReceipts, sent, received } = islands;
    expect(await send('none.tar')).toBeUndefined();
    expect(await sendReceipts('none.tar')).toBeUndefined();
    await some(islands, 'a', 25);
    expect(await send('a.tar')).toMatchObject({ kind: 'facts', firstOffset: 1, lastOffset: 25 });
    expect(await peekBundle(islands.path('a.tar'))).toMatchObject({ from: 'plant-a', to: 'enterprise' });
    expect(await take('a.tar')).toMatchObject({ taken: 25, quarantined: 0, frontier: { offset: 25 } });
    expect(essence(await received())).toEqual(essence(await sent()));
    const { bytes } = await enterprise.objects.get({ tenantId: 'default', bucket: 'files', key: 'a.bin' });
    const parts: Uint8Array[] = [];
    for await (const part of bytes) parts.push(part);
    expect(Buffer.concat(parts)).toHaveLength(20_000);
    // Twice changes nothing.
    const before = await leftBehind(islands);
    expect(await take('a.tar')).toMatchObject({ taken: 0 });
    expect(await leftBehind(islands)).toEqual(before);
    // One receipt for each chunk of ten; nothing is confirmed before they come back.
    expect(before.receipts).toBe(3);
    expect(await plant.store.consumers(out)).toEqual([]);
    expect(await sendReceipts('back.tar')).toMatchObject({ kind: 'receipts', lastOffset: 25 });
    for (const _ of [1, 2])
      expect(await takeReceipts('back.tar')).toMatchObject({ receipts: 3, confirmedUpTo: 25 });
    expect((await plant.store.consumers(out)).map(({ name, cursor }) => [name, cursor])).toEqual([
      [peerConsumer('enterprise'), 25],
    ]);
    const ranges = (receipts: readonly { fromOffset: number; toOffset: number }[]) =>
      receipts.map(({ fromOffset, toOffset }) => [fromOffset, toOffset]);
    const kept = await plant.store.receipts(out, { after: 0, limit: 10 });
    expect(ranges(kept)).toEqual([
      [1, 10],
      [11, 20],
      [21, 25],
    ]);
    expect(kept).toEqual(await enterprise.store.receipts(into, { after: 0, limit: 10 }));
    // The next one begins behind them.
    await some(islands, 'b', 3);
    expect(await send('b.tar')).toMatchObject({ firstOffset: 26, lastOffset: 28 });
    expect(await take('b.tar')).toMatchObject({ taken: 3 });
    expect(essence(await received())).toEqual(essence(await sent()));
    // It can be listed with what every machine has.
    const { stdout } = await promisify(execFile)('tar', ['-tf', islands.path('b.tar')]);
    expect(stdout.split('\n').map((line) => line.replace(/[0-9a-f]{64}/, 'sha'))).toEqual([
      'header.json',
      'facts/0000000000000026.jsonl',
      'objects/0000000000000026/sha',
      'manifest.json',
      '',
    ]);
    expect((await readdir(islands.folder)).filter((name) => name.endsWith('.part'))).toEqual([]);
  });

  test('BND-4, BND-11: a sender that was restored, and has not come as far as before, is found out', async () => {
    const islands = await twoIslands();
    const { plant, append, send, take } = islands;
    await some(islands, 'a', 40);
    await send('a.tar');
    await take('a.tar');
    const before = await leftBehind(islands);
    // What a backup of 20 facts has.
    await plant.database.query('delete from tallyman.log_entries where "offset" > 20');
    await plant.database.query(
      `update tallyman.log_streams s set next_offset = 21, chain = e.chain
         from tallyman.log_entries e where e.stream = s.id and e."offset" = 20`,
    );
    for (let i = 0; i < 10; i += 1) await append(`b${i}`);
    expect(await send('b.tar', { after: 20 })).toMatchObject({ firstOffset: 21, lastOffset: 30 });
    await expect(take('b.tar')).rejects.toMatchObject({ reason: 'chain_mismatch' });
    expect(await leftBehind(islands)).toEqual(before);
  });

  test('BND-11: bundles that overlap in any way leave each fact once; one that leaves a gap is refused', async () => {
    const islands = await twoIslands();
    const { send, take, sent, received } = islands;
    await some(islands, 'a', 60);
    const ranges = [
      [0, 12],
      [5, 17],
      [17, 30],
      [2, 9],
      [0, 31],
      [25, 47],
      [0, 60],
    ] as const;
    for (const [after, upTo] of ranges) await send(`${after}-${upTo}.tar`, { after, upTo });
    await expect(take('5-17.tar')).rejects.toMatchObject({
      reason: 'offset_gap',
      details: { missing_from: 1, missing_to: 5 },
    });
    expect(await leftBehind(islands)).toEqual(nothing);
    const taken: number[] = [];
    for (const [after, upTo] of ranges) taken.push((await take(`${after}-${upTo}.tar`)).taken);
    expect(taken).toEqual([12, 5, 13, 0, 1, 16, 13]);
    expect(essence(await received())).toEqual(essence(await sent()));
  });

  test('BND-11: two imports of one bundle at the same time leave each fact once', async () => {
    const islands = await twoIslands();
    const { send, take, sent, received } = islands;
    await some(islands, 'a', 80);
    await send('a.tar');
    const answers = await Promise.all([take('a.tar'), take('a.tar'), take('a.tar')]);
    expect(answers.map(({ frontier }) => frontier?.offset)).toEqual([80, 80, 80]);
    expect(essence(await received())).toEqual(essence(await sent()));
    const receipts = await islands.enterprise.store.receipts(into, { after: 0, limit: 100 });
    let covered = 0;
    for (const { fromOffset, toOffset } of receipts) {
      expect(fromOffset).toBe(covered + 1);
      covered = toOffset;
    }
    expect(covered).toBe(80);
  });

  test('BND-11: a file in which any byte is another one is refused with the place, and nothing is taken', async () => {
    const random = seededRandom();
    const islands = await twoIslands();
    await some(islands, 'a', 25);
    await islands.send('a.tar');
    const bytes = await readFile(islands.path('a.tar'));
    // Some of every block, and every kind of entry: the object is most of the file.
    const places = new Set(
      Array.from({ length: 150 }, (_, i) =>
        i < 75 ? random.whole(bytes.length) : bytes.length - 1 - random.whole(12_000),
      ),
    );
    for (const at of places) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ (1 << random.whole(8));
      await writeFile(islands.path('changed.tar'), changed);
      const error = await islands.take('changed.tar').then(
        () => undefined,
        (thrown: BoundaryError) => thrown,
      );
      // The zone that a bundle is for is looked at first, so that one for others is refused at once.
      expect(['bad_bundle', 'wrong_stream'], `byte ${at}`).toContain(error?.reason);
      if (error?.reason === 'bad_bundle') expect(error.details?.place, `byte ${at}`).toMatch(/./);
    }
    expect(await leftBehind(islands)).toEqual(nothing);
    expect((await islands.take('a.tar')).taken).toBe(25);
  }, 240_000);

  test('BND-11: the place of what was changed is told', async () => {
    const islands = await twoIslands();
    await some(islands, 'a', 25);
    await islands.send('a.tar');
    const bytes = await readFile(islands.path('a.tar'));
    const told = async (change: (copy: Buffer) => Buffer): Promise<string> => {
      await writeFile(islands.path('changed.tar'), change(Buffer.from(bytes)));
      return islands.take('changed.tar').then(
        () => 'taken',
        (error: Error) => error.message,
      );
    };
    const replaced = (from: string, to: string) => (copy: Buffer) => {
      copy.write(to, copy.indexOf(from), 'latin1');
      return copy;
    };
    // A record, a chain hash, an object, the header, the manifest.
    expect(await told(replaced('{\\\\\\"i\\\\\\":11}', '{\\\\\\"i\\\\\\":99}'))).toMatch(
      /facts\/00000000000000\d1\.jsonl: .*the chain hash at offset \d+/,
    );
    const object = bytes.indexOf('objects/');
    expect(
      await told((copy) => {
        copy[object + 5000] = (copy[object + 5000] ?? 0) ^ 1;
        return copy;
      }),
    ).toMatch(/: objects\/0000000000000001\/[0-9a-f]{64}: the bytes of this object/);
    expect(await told(replaced('"createdAt":1', '"createdAt":2'))).toMatch(/header\.json: its createdAt/);
    const manifest = bytes.indexOf('manifest.json');
    expect(
      await told((copy) => {
        copy.write('"lastOffset":24', copy.indexOf('"lastOffset":25', manifest), 'latin1');
        return copy;
      }),
    ).toMatch(/manifest\.json: it is not signed/);
    // The last digit of base64 has bits that mean nothing: the signature is the same, the file is not.
    expect(
      await told((copy) => {
        const at = copy.indexOf('=="', manifest) - 1;
        const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
        copy.write(digits[digits.indexOf(String.fromCharCode(copy[at] ?? 0)) + 1] ?? '', at, 'latin1');
        return copy;
      }),
    ).toMatch(/manifest\.json: it is not signed/);
    // Cut at every place that matters.
    for (const at of [0, 100, 512, 1500, object + 600, manifest, manifest + 600, bytes.length - 512]) {
      expect(await told((copy) => copy.subarray(0, at)), `cut at ${at}`).toMatch(
        /byte \d+ \(.*\): the file ends here/,
      );
    }
    expect(await told((copy) => Buffer.concat([copy, Buffer.from('x')]))).toContain('something follows');
    // The same facts in other words, in an archive that is sound: the signature is over the bytes.
    const facts = bytes.indexOf('facts/');
    const size = Number.parseInt(bytes.toString('latin1', facts + 124, facts + 135), 8);
    const mtime = Number.parseInt(bytes.toString('latin1', facts + 136, facts + 147), 8);
    expect(paddingOf(size)).toBeGreaterThan(0);
    expect(
      await told((copy) =>
        Buffer.concat([
          copy.subarray(0, facts),
          tarHeader(names.facts(1), size + 1, mtime),
          Buffer.from(' '),
          copy.subarray(facts + 512, facts + 512 + size),
          Buffer.alloc(paddingOf(size + 1)),
          copy.subarray(facts + 512 + size + paddingOf(size)),
        ]),
      ),
    ).toContain('manifest.json: the bytes before it are not those that were signed');
    // Two chunks in another order, and one left out.
    const [first, second, third] = [1, 11, 21].map((offset) =>
      bytes.indexOf(`facts/${String(offset).padStart(16, '0')}.jsonl`),
    ) as [number, number, number];
    const part = (copy: Buffer, from: number, to: number) => copy.subarray(from, to);
    expect(
      await told((copy) =>
        Buffer.concat([
          part(copy, 0, second),
          part(copy, third, manifest),
          part(copy, second, third),
          part(copy, manifest, copy.length),
        ]),
      ),
    ).toContain('facts/0000000000000021.jsonl comes here, and facts/0000000000000011.jsonl');
    expect(
      await told((copy) => Buffer.concat([part(copy, 0, first), part(copy, second, copy.length)])),
    ).toContain('facts/0000000000000011.jsonl comes here, and facts/0000000000000001.jsonl');
    expect(
      await told((copy) => Buffer.concat([part(copy, 0, third), part(copy, manifest, copy.length)])),
    ).toContain('the file ends with 20');
    expect(await leftBehind(islands)).toEqual(nothing);
  });

  test('BND-11: a bundle of another zone, key, kind, stream or epoch is refused, and nothing is taken', async () => {
    const islands = await twoIslands();
    const { plant, enterprise, take, takeReceipts, sendReceipts, path } = islands;
    await some(islands, 'a', 5);
    await islands.send('a.tar');
    await expect(take('a.tar', { keyOf: () => enterprise.publicKey })).rejects.toThrow('is not signed by');
    await expect(take('a.tar', { keyOf: () => undefined })).rejects.toThrow('is not signed by');
    await expect(take('a.tar', { zone: 'lab' })).rejects.toMatchObject({ reason: 'wrong_stream' });
    await expect(take('a.tar', { tenantId: 'other' })).rejects.toMatchObject({ reason: 'wrong_stream' });
    await expect(takeReceipts('a.tar')).rejects.toThrow('it is a bundle of facts');
    expect(await leftBehind(islands)).toEqual(nothing);
    await take('a.tar');
    await sendReceipts('back.tar');
    await expect(take('back.tar')).rejects.toThrow('it is a bundle of receipts');
    // Another plant under the same name: as if its database had been replaced.
    const other = await twoIslands();
    await some(other, 'x', 8);
    await other.send('x.tar');
    await copyFile(other.path('x.tar'), path('x.tar'));
    const before = await leftBehind(islands);
    await expect(take('x.tar', { keyOf: () => other.plant.publicKey })).rejects.toMatchObject({
      reason: 'epoch_mismatch',
    });
    expect(await leftBehind(islands)).toEqual(before);
    // Other facts were received up to here than the bundle has: in the one that goes on, and in the one that brings nothing new.
    await islands.append('next');
    await islands.send('next.tar', { after: 5 });
    await islands.send('all.tar', { after: 0 });
    await enterprise.database.query(`update boundary.streams set source_chain = repeat('ab', 32)`);
    for (const name of ['next.tar', 'all.tar', 'a.tar'])
      await expect(take(name), name).rejects.toMatchObject({ reason: 'chain_mismatch' });
    expect((await islands.received()).length).toBe(5);
    await copyFile(path('back.tar'), other.path('back.tar'));
    await expect(other.takeReceipts('back.tar')).rejects.toThrow('is not signed by');
    expect(await plant.store.receipts(out, { after: 0, limit: 10 })).toEqual([]);
  });

  test('BND-11: a file that is exchanged while it is imported is noticed before its facts are taken', async () => {
    const islands = await twoIslands();
    const { send, take, path, keyOf, received } = islands;
    await some(islands, 'a', 30);
    await send('a.tar', { upTo: 15 });
    await send('b.tar', { upTo: 30 });
    await copyFile(path('a.tar'), path('medium.tar'));
    await copyFile(path('b.tar'), path('other.tar'));
    let checks = 0;
    const exchanged = await take('medium.tar', {
      keyOf: (zone, keyId) => {
        checks += 1;
        // Asked for at the end of each pass. Another file of the same stream, whole and signed, takes its place.
        if (checks === 1) renameSync(path('other.tar'), path('medium.tar'));
        return keyOf(zone, keyId);
      },
    }).catch((error: unknown) => error);
    expect(exchanged).toMatchObject({
      reason: 'bad_bundle',
      message: expect.stringContaining('the file has changed while it was imported'),
    });
    // The first ten facts are those that were verified.
    expect(await received()).toHaveLength(10);
  });

  test('BND-8: what cannot be taken from a bundle goes into quarantine, and the way back tells the sender', async () => {
    const islands = await twoIslands({ enterprise: { maxObjectBytes: 5000 } });
    const { plant, enterprise, append, putObject, send, take, sendReceipts, takeReceipts, received } =
      islands;
    await putObject('taken', Buffer.from('theirs'), enterprise);
    await append('a');
    await append('conflict', await putObject('taken', Buffer.from('ours')));
    await append('large', await putObject('large', randomBytes(6000)));
    await append('two names', await putObject('copy 1', Buffer.from('same')));
    await append('two names again', await putObject('copy 2', Buffer.from('same')));
    const lost = await putObject('lost', Buffer.from('lost'));
    await append('lost', lost);
    await rm(fileOf(plant.folder, lost.digest));
    await send('a.tar');
    expect(await take('a.tar')).toMatchObject({ taken: 6, quarantined: 3 });
    expect((await received()).map(({ key }) => key.includes('gap'))).toEqual([
      false,
      true,
      true,
      false,
      false,
      true,
    ]);
    expect(
      await enterprise.objects.info({ tenantId: 'default', bucket: 'files', key: 'copy 2' }),
    ).toMatchObject({
      size: 4,
    });
    await sendReceipts('back.tar');
    await takeReceipts('back.tar');
    for (const kept of [
      await enterprise.store.quarantined(into, { after: 0, limit: 10 }),
      await plant.store.quarantined(out, { after: 0, limit: 10 }),
    ])
      expect(kept).toMatchObject([
        { offset: 2, messageId: 'conflict', reason: 'object_differs' },
        { offset: 3, messageId: 'large', reason: 'too_large' },
        { offset: 6, messageId: 'lost', reason: 'object_lost' },
      ]);
  });

  test('BND-9: what a full stream has dropped is told in the bundle, and becomes gap records', async () => {
    const islands = await twoIslands();
    const { plant, send, take, sendReceipts, takeReceipts, sent, received } = islands;
    await some(islands, 'a', 40);
    const before = await sent();
    const { epoch = '' } = (await plant.store.state(out)) ?? {};
    for (const [from, to] of [
      [1, 7],
      [8, 25],
    ] as const)
      await plant.store.drop(out, { from, to, chain: before[to - 1]?.chain ?? '', epoch });
    expect(await send('a.tar')).toMatchObject({ firstOffset: 1, lastOffset: 40 });
    expect(await take('a.tar')).toMatchObject({ taken: 40, quarantined: 0 });
    expect((await received()).map(({ offset, key }) => [offset, key.includes('gap')])).toEqual(
      before.map(({ offset }) => [offset, offset <= 25]),
    );
    await sendReceipts('back.tar');
    expect(await takeReceipts('back.tar')).toMatchObject({ confirmedUpTo: 40 });
    expect(await take('a.tar')).toMatchObject({ taken: 0 });
  });

  test('BND-10: receipts of another key, or for other facts, confirm nothing', async () => {
    const islands = await twoIslands();
    const { plant, send, take, sendReceipts, takeReceipts, path } = islands;
    await some(islands, 'a', 5);
    await send('a.tar');
    await take('a.tar');
    await sendReceipts('back.tar');
    const bytes = await readFile(path('back.tar'));
    await writeFile(path('changed.tar'), bytes.subarray(0, -2000));
    await expect(takeReceipts('changed.tar')).rejects.toMatchObject({ reason: 'bad_bundle' });
    const at = bytes.indexOf('"receivedAt":');
    bytes.write('9', at + '"receivedAt":'.length, 'latin1');
    await writeFile(path('changed.tar'), bytes);
    await expect(takeReceipts('changed.tar')).rejects.toMatchObject({ reason: 'bad_receipt' });
    expect(await plant.store.consumers(out)).toEqual([]);
    expect(await plant.store.receipts(out, { after: 0, limit: 10 })).toEqual([]);
    expect(await takeReceipts('back.tar')).toMatchObject({ confirmedUpTo: 5 });
  });

  test('BND-4: a fact that was changed in the database is not exported; trimmed facts are asked for in vain', async () => {
    const islands = await twoIslands();
    const { plant, send, take, sendReceipts, takeReceipts } = islands;
    await some(islands, 'a', 12);
    await send('a.tar', { upTo: 6 });
    await take('a.tar');
    await sendReceipts('back.tar');
    await takeReceipts('back.tar');
    await plant.store.trim(out, 6);
    await expect(send('old.tar', { after: 3 })).rejects.toMatchObject({ reason: 'not_exportable' });
    // What was confirmed is known by its receipt, though the fact itself is gone.
    const next: BundleManifest | undefined = await send('b.tar');
    expect(next).toMatchObject({ firstOffset: 7, lastOffset: 12 });
    expect((await take('b.tar')).taken).toBe(6);
    await plant.database.query(
      `update tallyman.log_entries set payload = replace(payload::text, '"producedAt":1', '"producedAt":2')::json where "offset" = 9`,
    );
    await expect(send('c.tar', { after: 7 })).rejects.toThrow('the chain hash at offset 9');
    expect((await readdir(islands.folder)).filter((name) => name.startsWith('c.tar'))).toEqual([]);
  });
});
