import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { TenantDatabase } from '../../src/engine/database/tenant.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { engine } from '../support/engine.ts';

const any = defineKind({ name: 'any', handler: () => {} });

test('ENG-9: a pool is refused as tx, in every shape, and nothing is written', async () => {
  const { tallyman, url } = await engine();
  const pool = new pg.Pool({ connectionString: url });
  onTestFinished(() => pool.end());
  for (const tx of [
    pool,
    tallyman.database.pool,
    tallyman.database,
    new TenantDatabase(tallyman.database, 'a'),
  ])
    for (const call of [
      tallyman.enqueue(any, {}, { tx: tx as never }),
      tallyman.enqueueMany(any, [{ payload: {} }], { tx: tx as never }),
    ])
      await expect(call).rejects.toMatchObject({
        code: 'BAD_OPTION',
        message: expect.stringMatching(/tx is a pool .*Pass the client/),
      });
  expect((await tallyman.jobs.list()).items).toEqual([]);
});

test('ENG-9: what cannot run SQL is refused as tx', async () => {
  const { tallyman } = await engine();
  for (const tx of [null, {}, 'begin', { query: {} }])
    await expect(tallyman.enqueue(any, {}, { tx: tx as never })).rejects.toMatchObject({
      code: 'BAD_OPTION',
    });
});

test('ENG-9: a client of pg in a transaction is accepted, from the pool or not', async () => {
  const { tallyman, url } = await engine();
  const pool = new pg.Pool({ connectionString: url });
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await pool.end();
  });
  const pooled = await pool.connect();
  for (const tx of [client, pooled]) {
    await tx.query('begin');
    await tallyman.enqueue(any, { n: 1 }, { tx });
    await tx.query('commit');
  }
  pooled.release();
  expect((await tallyman.jobs.list()).items).toHaveLength(2);
});
