import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { Database } from '../../../src/engine/database/database.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { registerKinds } from '../../../src/engine/jobs/recover.ts';
import { Schedules } from '../../../src/engine/schedules/schedules.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';
import { RecordedLogs } from '../../support/services/logs.ts';

let fresh: FreshDatabase;
let schedules: Schedules;

const report = defineKind({
  name: 'report',
  schema: z.object({ site: z.string() }),
  lane: { key: ({ site }) => `site-${site}` },
  handler: () => {},
});
const hourly = { name: 'hourly', cron: '0 * * * *', kind: report, payload: { site: 'a' } };

beforeEach(async () => {
  fresh = await freshDatabase();
  schedules = new Schedules(fresh.database);
  await registerKinds(fresh.database, [report]);
});
afterEach(() => fresh.drop());

interface JobRow {
  id: string;
  kind: string;
  payload: unknown;
  dedupe_key: string;
  tenant_id: string;
  lane: string | null;
  queue: string;
  priority: number;
  max_attempts: number;
}
const jobs = async (): Promise<JobRow[]> =>
  (await fresh.database.query<JobRow>('select * from tallyman.live_jobs order by id')).rows;
const makeDue = (name = 'hourly', ago = '10 minutes') =>
  fresh.database.query(
    `update tallyman.schedules set next_run_at = date_trunc('second', now() - $2::interval) where name = $1`,
    [name, ago],
  );
const only = async () => (await schedules.list())[0];

describe('ENG-13: upsert', () => {
  it('computes the next time in the time zone, from the clock of the database', async () => {
    const made = await schedules.upsert({ ...hourly, cron: '30 3 * * *', timezone: 'Asia/Kolkata' });
    // 03:30 at +05:30, all year round.
    expect(made.nextRunAt.toISOString()).toMatch(/T22:00:00.000Z$/);
    expect(made).toMatchObject({
      name: 'hourly',
      enabled: true,
      kind: 'report',
      options: { lane: 'site-a' },
    });
    expect(await schedules.list()).toEqual([made]);
  });

  it.each([
    ['61 * * * *', 'minute: 61'],
    ['* * *', 'five, six, or seven'],
    ['0 0 * * MOX', 'MOX'],
    ['0 0 30 2 *', 'never comes'],
    ['2026-01-01T00:00:00', 'scheduledAt'],
    ['', 'must be a text'],
  ])('refuses the cron expression "%s" and names what is wrong', async (cron, problem) => {
    await expect(schedules.upsert({ ...hourly, cron })).rejects.toThrow(problem);
    expect(await schedules.list()).toEqual([]);
  });

  it('refuses an unknown time zone, a bad payload and bad options', async () => {
    await expect(schedules.upsert({ ...hourly, timezone: 'Mars/Olympus' })).rejects.toThrow('Mars/Olympus');
    const bad = { ...hourly, payload: { site: 7 } } as unknown as typeof hourly;
    await expect(schedules.upsert(bad)).rejects.toMatchObject({
      code: 'VALIDATION_ERROR',
      details: { path: 'site' },
    });
    await expect(schedules.upsert({ ...hourly, maxAttempts: 0 })).rejects.toThrow('maxAttempts');
    await expect(schedules.upsert({ ...hourly, lane: 'x'.repeat(300) })).rejects.toThrow('256 bytes');
    await expect(
      schedules.upsert({ ...hourly, payload: { site: 'x'.repeat(2 ** 20) } }),
    ).rejects.toMatchObject({
      code: 'PAYLOAD_TOO_LARGE',
    });
    expect(await schedules.list()).toEqual([]);
  });

  it('stated again, it keeps what is due and stays paused; with another rhythm it starts anew', async () => {
    await schedules.upsert(hourly);
    await makeDue();
    const due = (await only())?.nextRunAt;
    await schedules.pause('hourly');
    const again = await schedules.upsert({ ...hourly, payload: { site: 'b' } });
    expect(again).toMatchObject({ enabled: false, nextRunAt: due, payload: { site: 'b' } });
    const changed = await schedules.upsert({ ...hourly, cron: '0 0 * * *' });
    expect(changed.nextRunAt.getTime()).toBeGreaterThan(due?.getTime() ?? Number.POSITIVE_INFINITY);
  });
});

describe('ENG-13: runDue', () => {
  it('enqueues what is due, with its options, and nothing before its time', async () => {
    await schedules.upsert({ ...hourly, queue: 'reports', priority: 1, tenantId: 't1', maxAttempts: 3 });
    expect(await schedules.runDue()).toEqual([]);
    await makeDue();
    const due = (await only())?.nextRunAt ?? new Date(0);
    const runs = await schedules.runDue();
    expect(await jobs()).toMatchObject([
      {
        id: runs[0]?.jobId,
        kind: 'report',
        payload: { site: 'a' },
        dedupe_key: `schedule:hourly:${due.toISOString()}`,
        tenant_id: 't1',
        lane: 'site-a',
        queue: 'reports',
        priority: 1,
        max_attempts: 3,
      },
    ]);
    expect(runs).toEqual([{ name: 'hourly', tenantId: 't1', dueAt: due, jobId: expect.any(String) }]);
    expect((await only())?.lastJobId).toBe(runs[0]?.jobId);
    expect(await schedules.runDue()).toEqual([]);
  });

  it('times missed while nobody looked become one run, not a flood', async () => {
    await schedules.upsert({ ...hourly, cron: '0 0 1 * *' });
    await makeDue('hourly', '1 year');
    const due = (await only())?.nextRunAt;
    expect(await schedules.runDue()).toMatchObject([{ name: 'hourly', dueAt: due }]);
    expect(await schedules.runDue()).toEqual([]);
    expect(await jobs()).toHaveLength(1);
  });

  it('schedulers racing enqueue each due time once', async () => {
    const names = Array.from({ length: 12 }, (_, i) => `s${i}`);
    for (const name of names) await schedules.upsert({ ...hourly, name });
    for (const round of [1, 2, 3]) {
      for (const name of names) await makeDue(name, `${round} minutes`);
      const others = [schedules, new Schedules(fresh.database), new Schedules(fresh.database)];
      const runs = (await Promise.all(others.map((each) => each.runDue()))).flat();
      expect(runs.map(({ name }) => name).sort()).toEqual([...names].sort());
      expect(await jobs()).toHaveLength(names.length * round);
    }
  });

  it('a crash between enqueue and commit leaves the schedule due and no job; the next one runs it once', async () => {
    await schedules.upsert(hourly);
    await makeDue();
    const killed = schedules.runDue({
      transaction: (work) =>
        fresh.database.transaction(async (tx) => {
          await work(tx);
          const { rows } = await tx.query('select pg_backend_pid() as pid');
          await fresh.database.query('select pg_terminate_backend($1, 5000)', [rows[0]?.pid]);
          return tx.query('select 1') as never;
        }),
    });
    await expect(killed).rejects.toThrow();
    expect(await jobs()).toEqual([]);
    expect(await schedules.runDue()).toHaveLength(1);
    expect(await schedules.runDue()).toEqual([]);
    expect(await jobs()).toHaveLength(1);
  });

  it('a commit whose answer was lost is not repeated', async () => {
    await schedules.upsert(hourly);
    await makeDue();
    const unheard = schedules.runDue({
      transaction: async (work) => {
        await fresh.database.transaction(work);
        throw new Error('connection lost');
      },
    });
    await expect(unheard).rejects.toThrow('connection lost');
    expect(await schedules.runDue()).toEqual([]);
    expect(await jobs()).toHaveLength(1);
  });

  it('the dedupe key is the second line: a time put back by hand adds no second job', async () => {
    await schedules.upsert(hourly);
    await makeDue();
    const due = (await only())?.nextRunAt;
    const [first] = await schedules.runDue();
    await fresh.database.query('update tallyman.schedules set next_run_at = $1', [due]);
    const [second] = await schedules.runDue();
    expect(second?.jobId).toBe(first?.jobId);
    expect(await jobs()).toHaveLength(1);
  });

  it('a kind that nobody knows holds up no other, is reported once, and runs when it is known', async () => {
    const logs = new RecordedLogs();
    const database = await Database.connect({ url: fresh.url, logger: logs });
    const telling = new Schedules(database);
    await telling.upsert({ ...hourly, name: 'a-unknown', kind: 'unknown', payload: {} });
    await telling.upsert(hourly);
    await makeDue('a-unknown');
    await makeDue();
    expect((await telling.runDue()).map(({ name }) => name)).toEqual(['hourly']);
    expect(await telling.runDue()).toEqual([]);
    expect(logs.at('warn').map(({ fields }) => fields)).toEqual([
      { schedule: 'a-unknown', tenant: 'default', problem: 'unknown kind "unknown"' },
    ]);
    await registerKinds(fresh.database, [defineKind({ name: 'unknown', handler: () => {} })]);
    expect((await telling.runDue()).map(({ name }) => name)).toEqual(['a-unknown']);
    await database.close();
  });

  it('SEC-5: a pass ends, though more falls due than it can run; tenants take turns in it', async () => {
    await fresh.database.query(
      `insert into tallyman.schedules (name, cron, timezone, kind, payload, tenant_id, options, next_run_at)
       select 's' || n, '* * * * * *', 'UTC', 'report', '{"site": "a"}', 'greedy', '{}', now() - interval '1 hour'
         from generate_series(1, 300) n`,
    );
    await schedules.upsert({ ...hourly, tenantId: 'other' });
    await makeDue('hourly', '1 minute');
    const runs = await schedules.runDue();
    expect(runs).toHaveLength(200);
    expect(runs.slice(0, 2).map(({ tenantId }) => tenantId)).toContain('other');
    const stopped = new AbortController();
    stopped.abort();
    expect(await schedules.runDue(fresh.database, stopped.signal)).toEqual([]);
  });

  it('SEC-5: many schedules that cannot run keep no others from running, and are all tried again', async () => {
    await fresh.database.query(
      `insert into tallyman.schedules (name, cron, timezone, kind, payload, tenant_id, options, next_run_at)
       select 's' || n, '@yearly', 'UTC', 'unknown', '{}', 'default', '{}', now() - interval '1 hour'
         from generate_series(1, 250) n`,
    );
    await schedules.upsert(hourly);
    await makeDue('hourly', '1 minute');
    expect(await schedules.runDue()).toEqual([]);
    expect(await schedules.runDue()).toMatchObject([{ name: 'hourly' }]);
    await registerKinds(fresh.database, [defineKind({ name: 'unknown', handler: () => {} })]);
    let ran = 0;
    for (let pass = 0; pass < 15; pass += 1) ran += (await schedules.runDue()).length;
    expect(ran).toBe(250);
  });

  it('a rhythm that has come to its end rests', async () => {
    await schedules.upsert({ ...hourly, cron: '0 0 0 1 1 * 2090' });
    await fresh.database.query(
      `update tallyman.schedules set cron = '0 0 0 1 1 * 2020', next_run_at = '2020-01-01'`,
    );
    expect(await schedules.runDue()).toHaveLength(1);
    expect(await only()).toMatchObject({ enabled: false });
    expect(await schedules.runDue()).toEqual([]);
    expect(await schedules.resume('hourly')).toBe(false);
  });
});

it('ENG-13: pause, resume, remove, and when the next is due', async () => {
  expect(await schedules.dueInMs()).toBeUndefined();
  await schedules.upsert(hourly);
  expect(await schedules.dueInMs()).toBeLessThanOrEqual(3_600_000);
  await makeDue();
  expect(await schedules.dueInMs()).toBeLessThan(0);
  expect(await schedules.pause('hourly')).toBe(true);
  expect(await schedules.pause('hourly')).toBe(false);
  expect(await schedules.dueInMs()).toBeUndefined();
  expect(await schedules.resume('hourly')).toBe(true);
  // What fell into the pause was not wanted.
  expect(await schedules.runDue()).toEqual([]);
  expect(await schedules.resume('hourly')).toBe(false);
  expect(await schedules.remove('hourly')).toBe(true);
  expect(await schedules.remove('hourly')).toBe(false);
});
