import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, onTestFinished, test } from 'vitest';
import { prepareFact } from '../../../../src/apps/boundary/sdk/fact.ts';
import { type NewFact, OutboxFile } from '../../../../src/apps/boundary/sdk/outbox/file.ts';
import { StagedObjects } from '../../../../src/apps/boundary/sdk/outbox/staged-objects.ts';

async function scratch(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-outbox-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

const defaults = { fromZone: 'plant-a', maxBytes: 1024 ** 2 };

async function outbox(path: string, options: Partial<typeof defaults> = {}): Promise<OutboxFile> {
  const file = await OutboxFile.open({ path, ...defaults, ...options });
  onTestFinished(() => file.close());
  return file;
}

function fact(messageId: string, object: unknown = messageId, toZone = 'enterprise'): NewFact {
  const given = { messageId, toZone, subject: 'order:1', predicate: 'is', object, producedAt: new Date(0) };
  const prepared = prepareFact(given, { fromZone: 'plant-a', rule: undefined, stored: undefined });
  return { ...prepared, object: undefined };
}

const all = { facts: 1000, bytes: 1024 ** 2, objects: 100 };
const ids = (file: OutboxFile, limits = all, zone = 'enterprise') =>
  file.waiting(zone, limits).map(({ messageId }) => messageId);

test('BND-14: facts leave in the order in which they came, as many as fit, each zone by itself', async () => {
  const file = await outbox(join(await scratch(), 'o.db'));
  expect(file.add([fact('a'), fact('x', 1, 'Lab'), fact('b'), fact('c')])).toEqual([true, true, true, true]);
  expect(ids(file)).toEqual(['a', 'b', 'c']);
  expect(ids(file, all, 'lab')).toEqual(['x']);
  expect(file.zones()).toEqual(['enterprise', 'lab']);
  expect(ids(file, { ...all, facts: 2 })).toEqual(['a', 'b']);
  expect(ids(file, { ...all, bytes: 1 })).toEqual(['a']);
  const [a, b] = file.waiting('enterprise', all);
  file.settle([a?.seq ?? 0], [{ seq: b?.seq ?? 0, reason: 'conflicting_duplicate', message: 'no' }]);
  expect(ids(file)).toEqual(['c']);
  expect(file.parked({ after: 0, limit: 10 })).toMatchObject([
    { messageId: 'b', reason: 'conflicting_duplicate' },
  ]);
  // Back to its place, before what has come since.
  expect(file.unpark('b')).toBe(1);
  expect(ids(file)).toEqual(['b', 'c']);
  expect(file.setAside('b', 'set_aside', 'looked at later')).toBe(true);
  expect(file.drop('c')).toBeUndefined();
  expect(file.drop('b')?.messageId).toBe('b');
  expect([ids(file), file.parkedCount(), file.firstWaiting(), file.last()]).toEqual([['c'], 0, 2, 4]);
});

test('BND-14: the same id is one fact; with other content it is refused, and the others are taken', async () => {
  const file = await outbox(join(await scratch(), 'o.db'));
  file.add([fact('a')]);
  const answers = file.add([fact('a'), fact('a', 'other'), fact('b'), fact('b')]);
  expect(answers).toMatchObject([false, { reason: 'conflicting_duplicate' }, true, false]);
  expect(ids(file)).toEqual(['a', 'b']);
});

test('BND-14: a full outbox says so, keeps what it has, and takes facts again when some have left', async () => {
  const path = join(await scratch(), 'o.db');
  const file = await outbox(path, { maxBytes: 1000 });
  const answers = file.add([fact('a'), fact('large', 'x'.repeat(1000)), fact('b')]);
  expect(answers).toMatchObject([true, { code: 'RESOURCE_EXHAUSTED', reason: 'outbox_full' }, true]);
  const { bytes } = file;
  expect(bytes).toBeGreaterThan(0);
  const [a] = file.waiting('enterprise', all);
  file.settle([a?.seq ?? 0], []);
  expect(file.bytes).toBeLessThan(bytes);
  file.close();
  // What it holds is counted again when it is opened.
  const left = bytes / 2;
  const again = await outbox(path, { maxBytes: 1000 });
  expect(again.bytes).toBe(left);
  expect(ids(again)).toEqual(['b']);
});

test('BND-14: one has an outbox at a time, and files of others are left alone', async () => {
  const folder = await scratch();
  const path = join(folder, 'o.db');
  const file = await outbox(path);
  file.add([fact('a')]);
  await expect(outbox(path)).rejects.toMatchObject({ reason: 'outbox_in_use' });
  // To try it has not ended the lock.
  await expect(outbox(path)).rejects.toMatchObject({ reason: 'outbox_in_use' });
  expect(file.add([fact('b')])).toEqual([true]);
  expect((await stat(path)).mode & 0o077).toBe(0);
  file.close();
  await expect(outbox(path, { fromZone: 'lab' })).rejects.toMatchObject({ reason: 'other_zone' });
  expect(ids(await outbox(path))).toEqual(['a', 'b']);

  const other = join(folder, 'other.db');
  const db = new DatabaseSync(other);
  db.exec('create table theirs (n integer)');
  db.close();
  await expect(outbox(other)).rejects.toMatchObject({ reason: 'not_an_outbox' });
  const text = join(folder, 'notes.txt');
  await writeFile(text, 'this is no database, and must not become one'.repeat(100));
  await expect(outbox(text)).rejects.toThrow();
  expect(await readFile(text, 'utf8')).toContain('this is no database');
});

test('BND-14: bytes of attachments are kept while a fact needs them, or is about to', async () => {
  const folder = await scratch();
  const needed = new Set<string>();
  const isNeeded = (digest: string) => needed.has(digest);
  const objects = await StagedObjects.open(folder, isNeeded);
  const tooLarge = () => new Error('too large');
  const stored = await objects.stage(Buffer.from('bytes'), 100, tooLarge);
  expect(stored).toEqual({
    digest: 'sha256:277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9',
    size: 5,
  });
  objects.release(stored.digest, isNeeded);
  expect(await readFile(objects.fileOf(stored.digest), 'utf8')).toBe('bytes');
  needed.add(stored.digest);
  objects.unpin(stored.digest);
  objects.release(stored.digest, isNeeded);
  expect(await readdir(folder)).toHaveLength(1);
  await expect(objects.stage(Buffer.alloc(101), 100, tooLarge)).rejects.toThrow('too large');
  // A crash has left half of a file, and one that no fact needs.
  await writeFile(join(folder, 'half.part'), 'x');
  const orphan = await objects.stage(Buffer.from('orphan'), 100, tooLarge);
  await StagedObjects.open(folder, isNeeded);
  expect(await readdir(folder)).toEqual([stored.digest.slice('sha256:'.length)]);
  needed.clear();
  objects.release(stored.digest, isNeeded);
  expect([await readdir(folder), orphan.size]).toEqual([[], 6]);
});
