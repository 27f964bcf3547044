import { afterEach, beforeEach, expect, it } from 'vitest';
import { Checkpoints } from '../../../src/engine/checkpoints/checkpoints.ts';
import type { Queryable } from '../../../src/engine/database/database.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';

let fresh: FreshDatabase;
let checkpoints: Checkpoints;

beforeEach(async () => {
  fresh = await freshDatabase();
  checkpoints = new Checkpoints(fresh.database);
  await fresh.database.query('create table effects (n integer)');
});
afterEach(() => fresh.drop());

const effect = (tx: Queryable, n: number) => tx.query('insert into effects values ($1)', [n]);
const effects = async (): Promise<number[]> =>
  (await fresh.database.query<{ n: number }>('select n from effects order by n')).rows.map(({ n }) => n);

it('there is none before the first; versions count the saves', async () => {
  expect(await checkpoints.load('tags')).toBeUndefined();
  expect(await checkpoints.save(fresh.database, 'tags', { file: 'a', line: 7 })).toBe(1);
  expect(await checkpoints.save(fresh.database, 'tags', { file: 'b', line: 1 }, { expectedVersion: 1 })).toBe(
    2,
  );
  expect(await checkpoints.save(fresh.database, 'tags', null)).toBe(3);
  expect(await checkpoints.load('tags')).toMatchObject({ position: null, version: 3 });
});

it('effects and checkpoint commit together or not at all', async () => {
  await fresh.database.transaction(async (tx) => {
    await effect(tx, 1);
    await checkpoints.save(tx, 'tags', 1);
    expect(await checkpoints.load('tags', tx)).toMatchObject({ position: 1 });
    expect(await checkpoints.load('tags')).toBeUndefined();
  });
  const failed = fresh.database.transaction(async (tx) => {
    await effect(tx, 2);
    await checkpoints.save(tx, 'tags', 2);
    throw new Error('crash');
  });
  await expect(failed).rejects.toThrow('crash');
  expect(await checkpoints.load('tags')).toMatchObject({ position: 1, version: 1 });
  expect(await effects()).toEqual([1]);
});

it('a session killed between effect and commit leaves neither', async () => {
  const killed = fresh.database.transaction(async (tx) => {
    await effect(tx, 1);
    await checkpoints.save(tx, 'tags', 1);
    const { rows } = await tx.query('select pg_backend_pid() as pid');
    await fresh.database.query('select pg_terminate_backend($1)', [rows[0]?.pid]);
  });
  await expect(killed).rejects.toThrow();
  expect(await checkpoints.load('tags')).toBeUndefined();
  expect(await effects()).toEqual([]);
});

it('a stale writer is refused, and its effects with it', async () => {
  const stale = await checkpoints.save(fresh.database, 'tags', 1);
  await checkpoints.save(fresh.database, 'tags', 2, { expectedVersion: stale });
  const late = fresh.database.transaction(async (tx) => {
    await effect(tx, 2);
    await checkpoints.save(tx, 'tags', 2, { expectedVersion: stale });
  });
  await expect(late).rejects.toMatchObject({
    code: 'CHECKPOINT_CONFLICT',
    message: expect.stringContaining('is at version 2, not at 1'),
  });
  const first = checkpoints.save(fresh.database, 'tags', 0, { expectedVersion: 0 });
  await expect(first).rejects.toMatchObject({ code: 'CHECKPOINT_CONFLICT' });
  expect(await effects()).toEqual([]);
});

it.each([0, 1])('of two writers on version %i at once, one wins', async (expectedVersion) => {
  if (expectedVersion === 1) await checkpoints.save(fresh.database, 'tags', 'start');
  const bothWrote = Promise.withResolvers<void>();
  let writing = 0;
  const write = (n: number) =>
    fresh.database.transaction(async (tx) => {
      await effect(tx, n);
      writing += 1;
      if (writing === 2) bothWrote.resolve();
      await bothWrote.promise;
      await checkpoints.save(tx, 'tags', n, { expectedVersion });
    });
  const outcomes = await Promise.allSettled([write(1), write(2)]);
  const winner = outcomes.findIndex(({ status }) => status === 'fulfilled') + 1;
  expect(outcomes.map((o) => o.status === 'rejected' && o.reason.code).filter(Boolean)).toEqual([
    'CHECKPOINT_CONFLICT',
  ]);
  expect(await effects()).toEqual([winner]);
  expect(await checkpoints.load('tags')).toMatchObject({ position: winner, version: expectedVersion + 1 });
});

it('refuses a position that JSON cannot say', async () => {
  await expect(checkpoints.save(fresh.database, 'tags', undefined)).rejects.toMatchObject({
    code: 'BAD_OPTION',
  });
  await expect(checkpoints.load('')).rejects.toMatchObject({ code: 'BAD_OPTION' });
});
