import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { TenantDatabase } from '../../../src/engine/database/tenant.ts';
import type { JobContext } from '../../../src/engine/jobs/context.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { type Bundle, drained, engine, until } from '../../support/engine.ts';
import { roundTrips } from '../../support/round-trips.ts';

/** A table under row-level security, with one row of tenant `b`. */
async function notebook(): Promise<Bundle> {
  const bundle = await engine();
  await bundle.rows(
    `create schema app;
     create table app.notes (tenant_id text not null, job bigint, text text not null);
     select tallyman.isolate('app.notes');
     insert into app.notes values ('b', 0, 'of b')`,
  );
  return bundle;
}

const insert = 'insert into app.notes (tenant_id, job, text) values ($1, $2, $3) returning text';
const all = "select tenant_id || ': ' || text as note from app.notes order by 1";
const notes = async (bundle: Bundle) => (await bundle.rows<{ note: string }>(all)).map(({ note }) => note);

describe('a handler of a tenant-scoped kind', () => {
  test('ENG-21: reads and writes the rows of its tenant, whatever its statements say', async () => {
    const bundle = await notebook();
    const seen: string[] = [];
    const kind = defineKind({
      name: 'k',
      scope: 'tenant',
      retry: { maxAttempts: 1 },
      handler: async (_, { tenant, tenantId, id }) => {
        await tenant.query(insert, [tenantId, id, 'by query']);
        await tenant.query(`update app.notes set text = 'stolen' where tenant_id = $1`, ['b']);
        await tenant.transaction(async (tx) => {
          await tx.query(insert, [tenantId, id, 'by transaction']);
          for (const { note } of (await tx.query<{ note: string }>(all)).rows) seen.push(note);
        });
        // A transaction that fails leaves nothing, and the connection as it was.
        await expect(
          tenant.transaction(async (tx) => {
            await tx.query(insert, [tenantId, id, 'rolled back']);
            throw new Error('no');
          }),
        ).rejects.toThrow('no');
        await expect(tenant.query(insert, ['b', id, 'for b'])).rejects.toThrow(/row-level security/);
      },
    });
    await bundle.tallyman.enqueue(kind, {}, { tenantId: 'a' });
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(await bundle.tallyman.jobs.counts()).toMatchObject({ SUCCEEDED: 1 });
    expect(seen).toEqual(['a: by query', 'a: by transaction']);
    expect(await notes(bundle)).toEqual(['a: by query', 'a: by transaction', 'b: of b']);
  });

  test('ENG-8: commits its effect under its tenant and its completion beside it; both or neither', async () => {
    const bundle = await notebook();
    const kind = defineKind<{ tenant: string }>({
      name: 'k',
      scope: 'tenant',
      retry: { maxAttempts: 1 },
      handler: ({ tenant }, context) =>
        context.commit(async (tx) => {
          await tx.query(`update app.notes set text = 'stolen'`);
          await tx.query(insert, [tenant, context.id, `job of ${context.tenantId}`]);
        }),
    });
    await bundle.tallyman.enqueue(kind, { tenant: 'a' }, { tenantId: 'a' });
    await bundle.tallyman.enqueue(kind, { tenant: 'b' }, { tenantId: 'a' });
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(await notes(bundle)).toEqual(['a: job of a', 'b: of b']);
    const { items } = await bundle.tallyman.deadLetters.list();
    expect(items.map(({ lastError }) => lastError?.message)).toEqual([
      expect.stringMatching(/row-level security/),
    ]);
    const [same] = await bundle.rows<{ n: string }>(
      `select count(*) as n from app.notes e join tallyman.history h on h.id = e.job and h.xmin::text = e.xmin::text`,
    );
    expect(same?.n).toBe('1');
  });

  test('ENG-8: statements of several tenants, and of kinds without a scope, share a commit and keep apart', async () => {
    const bundle = await notebook();
    const { database } = bundle.tallyman;
    const sent = vi.spyOn(database, 'pipelined');
    const started = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    let waiting = 0;
    const counts: Record<string, number> = {};
    let told = 0;
    const handler = async (_: unknown, context: JobContext): Promise<void> => {
      waiting += 1;
      if (waiting === 9) started.resolve();
      await go.promise;
      const { rows } = await context.commit<{ n: number }>(
        `with seen as (select count(*)::int as n from app.notes where job = 0)
         insert into app.notes (tenant_id, job, text) select $1, $2, $3 from seen
         returning (select n from seen) as n`,
        [context.tenantId, context.id, context.kind],
      );
      counts[`${context.kind} ${context.tenantId}`] = rows[0]?.n ?? -1;
      told += 1;
    };
    const scoped = defineKind({ name: 'scoped', scope: 'tenant', handler: (p, c) => handler(p, c) });
    const free = defineKind({ name: 'free', handler: (p, c) => handler(p, c) });
    for (const tenantId of ['a', 'b', 'c', 'a', "o'hara", 'b'])
      await bundle.tallyman.enqueue(scoped, {}, { tenantId });
    for (const tenantId of ['a', 'b', 'c']) await bundle.tallyman.enqueue(free, {}, { tenantId });
    await bundle.work({ kinds: [scoped, free], concurrency: 9 });
    await started.promise;
    go.resolve();
    await drained(bundle);
    expect((await bundle.tallyman.jobs.counts()).SUCCEEDED).toBe(9);
    // Handlers are told a moment after the commit.
    await until('all handlers are told', () => told === 9);
    expect(counts).toEqual({
      'scoped a': 0,
      'scoped b': 1,
      'scoped c': 0,
      "scoped o'hara": 0,
      'free a': 1,
      'free b': 1,
      'free c': 1,
    });
    // They did share commits: fewer transactions than jobs.
    expect(sent.mock.calls.length).toBeLessThan(9);
    expect((await bundle.rows<{ role: string }>('select current_user as role'))[0]?.role).not.toBe(
      bundle.tallyman.database.tenantRole,
    );
  });

  test('a query costs one round trip, begin, role and commit included', async () => {
    const { url } = await notebook();
    const wire = await roundTrips(url);
    const database = await Database.connect({ url: wire.url });
    onTestFinished(() => database.close());
    const tenant = new TenantDatabase(database, 'b');
    await tenant.query(all);
    wire.reset();
    for (let i = 0; i < 10; i += 1)
      expect((await tenant.query<{ note: string }>(all)).rows).toEqual([{ note: 'b: of b' }]);
    // Four for each, if each of begin, role, statement and commit waited for its answer.
    expect(wire.count()).toBeLessThan(20);
  });
});

describe('a kind without a scope', () => {
  test('pays nothing: its commits have the same statements as ever', async () => {
    const bundle = await notebook();
    const { database } = bundle.tallyman;
    const sent = vi.spyOn(database, 'pipelined');
    const opened = vi.spyOn(database, 'transaction');
    const kind = defineKind<{ form: string }>({
      name: 'k',
      handler: async ({ form }, context) => {
        const values = ['a', context.id, form];
        if (form === 'statement') await context.commit(insert, values);
        else await context.commit((tx) => tx.query(insert, values));
      },
    });
    await bundle.tallyman.enqueue(kind, { form: 'statement' });
    await bundle.tallyman.enqueue(kind, { form: 'work' });
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    const texts = sent.mock.calls.flatMap(([statements]) => statements.map(({ text }) => text));
    expect(texts).toEqual([insert, expect.stringMatching(/^select tallyman.complete_or_raise/)]);
    const options = opened.mock.calls.map(([, given]) => given);
    expect(options).toEqual([expect.objectContaining({ opening: undefined })]);
    const [given] = options;
    expect(typeof given === 'object' && given.closing?.()).toMatch(/^select tallyman.complete_or_raise/);
  });

  test('has no tenant handle, and says how to get one', async () => {
    const bundle = await engine();
    const kind = defineKind({
      name: 'k',
      retry: { maxAttempts: 1 },
      handler: (_, context) => context.tenant.query('select 1'),
    });
    await bundle.tallyman.enqueue(kind, {});
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    const { items } = await bundle.tallyman.deadLetters.list();
    expect(items[0]?.lastError).toMatchObject({
      code: 'BAD_STATE',
      message: expect.stringContaining(`scope: 'tenant'`),
    });
  });

  test('cannot be both bound to a tenant and declared to work across tenants', () => {
    const handler = () => {};
    expect(() => defineKind({ name: 'k', scope: 'tenant', acrossTenants: 'why', handler })).toThrow(
      expect.objectContaining({ code: 'BAD_OPTION' }),
    );
    expect(() => defineKind({ name: 'k', scope: 'some' as 'all', handler })).toThrow(
      expect.objectContaining({ code: 'BAD_OPTION' }),
    );
  });
});
