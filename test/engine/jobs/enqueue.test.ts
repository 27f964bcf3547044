import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import type { EnqueueOptions } from '../../../src/engine/jobs/new-job.ts';
import { Tallyman } from '../../../src/engine/tallyman.ts';
import { Notifier } from '../../../src/engine/wakeups/notifier.ts';
import type { Wakeup } from '../../../src/engine/wakeups/wakeup.ts';
import { engine, until } from '../../support/engine.ts';
import { emptyDatabase } from '../../support/postgres.ts';

const noop = defineKind<unknown>({ name: 'noop', handler: () => {} });
const count = async (bundle: Awaited<ReturnType<typeof engine>>) =>
  Number((await bundle.rows<{ n: string }>('select count(*) as n from tallyman.jobs'))[0]?.n);

/** What a session of its own hears of new jobs. */
async function listening(url: string) {
  const listener = new pg.Client({ connectionString: url });
  await listener.connect();
  const heard: string[] = [];
  listener.on('notification', ({ payload }) => heard.push(payload ?? ''));
  await listener.query('listen tallyman_jobs');
  return { heard, end: () => listener.end() };
}

describe('enqueue', () => {
  test('ENG-9: inside the caller’s transaction it exists if, and only if, that commits', async () => {
    const bundle = await engine();
    const client = new pg.Client({ connectionString: bundle.url });
    await client.connect();
    await client.query('begin');
    const { id } = await bundle.tallyman.enqueue(noop, {}, { tx: client });
    await bundle.tallyman.enqueueMany(
      noop,
      [
        { payload: 1, lane: 'a' },
        { payload: 2, dedupeKey: 'k' },
      ],
      { tx: client },
    );
    expect(await count(bundle)).toBe(0);
    await client.query('rollback');
    expect(await count(bundle)).toBe(0);
    expect(await bundle.tallyman.jobs.get(id)).toBeUndefined();
    await client.query('begin');
    const kept = await bundle.tallyman.enqueue(noop, {}, { tx: client });
    await client.query('commit');
    await client.end();
    expect((await bundle.tallyman.jobs.get(kept.id))?.status).toBe('QUEUED');
  });

  test.each<[string, (i: number) => EnqueueOptions]>([
    ['alike', () => ({})],
    ['each its own', (i) => ({ correlationId: `c-${i}` })],
    ['in lanes', (i) => ({ lane: `lane-${i % 7}` })],
  ])(
    'ENG-9: concurrent callers share a commit; each gets its own answer after it is durable (%s)',
    async (_, options) => {
      const bundle = await engine();
      const commits = async () =>
        Number(
          (await bundle.rows<{ n: string }>('select count(distinct xmin::text) as n from tallyman.jobs'))[0]
            ?.n,
        );
      const answers = await Promise.all(
        Array.from({ length: 500 }, (_, i) => bundle.tallyman.enqueue(noop, { i }, options(i))),
      );
      expect(new Set(answers.map((answer) => answer.id)).size).toBe(500);
      expect(await commits()).toBeLessThan(10);
      const rows = await bundle.rows<{ id: string; payload: { i: number } }>(
        'select id, payload from tallyman.jobs',
      );
      const byId = new Map(rows.map((row) => [row.id, row.payload.i]));
      answers.forEach((answer, i) => {
        expect(byId.get(answer.id)).toBe(i);
      });
    },
  );

  test('ENG-9: one caller’s refusal leaves the others alone, and nothing of it is written', async () => {
    const bundle = await engine();
    const strict = defineKind({ name: 'strict', schema: z.object({ n: z.number() }), handler: () => {} });
    const outcomes = await Promise.allSettled([
      bundle.tallyman.enqueue(strict, { n: 1 }),
      bundle.tallyman.enqueue(strict, { n: 'x' } as never),
      bundle.tallyman.enqueue(strict, { n: 2 }),
    ]);
    expect(outcomes.map((outcome) => outcome.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(await count(bundle)).toBe(2);
  });

  test.each(['half a pair \ud800', 'the other half \udfff', 'nothing \0', 'behind a backslash \\\ud800'])(
    'ENG-9: a text that is none is refused before it is sent: %j',
    async (text) => {
      const bundle = await engine();
      const answer = bundle.tallyman.enqueue(noop, { text });
      await expect(answer).rejects.toMatchObject({
        code: 'VALIDATION_ERROR',
        message: expect.stringMatching(/contains \\u(d800|dfff|0000)/),
      });
      expect(await count(bundle)).toBe(0);
    },
  );

  test('ENG-9: a text that this PostgreSQL cannot keep is refused for its caller alone', async () => {
    const { url, drop } = await emptyDatabase('LATIN1');
    const tallyman = await Tallyman.open({ databaseUrl: url, migrate: true });
    onTestFinished(async () => {
      await tallyman.close();
      await drop();
    });
    await tallyman.enqueue(noop, {});
    const outcomes = await Promise.allSettled([
      tallyman.enqueue(noop, { text: 'fine' }),
      tallyman.enqueue(noop, { text: '10 €' }),
      tallyman.enqueue(noop, { text: 'schön' }),
    ]);
    expect(outcomes.map((outcome) => outcome.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(outcomes[1]).toMatchObject({ reason: { code: 'VALIDATION_ERROR' } });
    const { items } = await tallyman.jobs.list();
    expect(items.map((job) => job.payload)).toEqual(expect.arrayContaining([{ text: 'schön' }]));
    expect(items).toHaveLength(3);
  });

  test('a transaction that PostgreSQL rolled back is not taken for a commit', async () => {
    const bundle = await engine();
    await expect(
      bundle.tallyman.database.transaction(async (tx) => {
        await bundle.tallyman.enqueue(noop, {}, { tx });
        await tx.query('select 1 / 0').catch(() => {});
      }),
    ).rejects.toMatchObject({ code: 'ROLLED_BACK' });
    expect(await count(bundle)).toBe(0);
  });

  test('ENG-9: the SQL function takes the kind’s defaults; triggers and other languages use it', async () => {
    const bundle = await engine();
    const ran: unknown[] = [];
    const kind = defineKind<unknown>({
      name: 'from-sql',
      queue: 'plant',
      priority: 1,
      retry: { maxAttempts: 9 },
      handler: (payload) => ran.push(payload),
    });
    const worker = await bundle.work({ kinds: [kind] });
    // On a busy machine start() returns before that.
    await until(
      'its kind is registered',
      async () => (await bundle.rows('select 1 from tallyman.kinds')).length > 0,
    );
    await worker.stop();
    await bundle.rows(`create table pallets (id int);
      create function on_pallet() returns trigger language plpgsql as $$ begin
        perform tallyman.enqueue('from-sql', json_build_object('pallet', new.id), lane => 'dock-1'); return new; end $$;
      create trigger t after insert on pallets for each row execute function on_pallet()`);
    await bundle.rows('insert into pallets values (41), (42)');
    const { items } = await bundle.tallyman.jobs.list();
    expect(items).toHaveLength(2);
    expect(items[0]).toMatchObject({ queue: 'plant', priority: 1, maxAttempts: 9, lane: 'dock-1' });
    await bundle.work({ kinds: [kind] });
    await until('both ran', () => ran.length === 2);
    expect(ran).toEqual([{ pallet: 41 }, { pallet: 42 }]);
  });

  test('the SQL function refuses bad input with one clear message and writes nothing', async () => {
    const bundle = await engine();
    await bundle.rows(`select tallyman.register_kind('k')`);
    const refusals: [string, RegExp][] = [
      [`tallyman.enqueue('nobody')`, /unknown kind "nobody"/],
      [`tallyman.enqueue('k', delay => '-1 second')`, /delay must not be negative/],
      [`tallyman.enqueue('k', priority => 4)`, /priority must be 0/],
      [`tallyman.enqueue('k', lane => repeat('x', 257))`, /lane must be 1 to 256 bytes, got 257/],
      [`tallyman.enqueue('k', json_build_object('a', repeat('x', 1100000)))`, /over the limit of 1048576/],
      [`tallyman.enqueue('k', max_attempts => 0)`, /max_attempts must be 1 to 1000/],
    ];
    for (const [call, message] of refusals)
      await expect(bundle.rows(`select ${call}`)).rejects.toThrow(message);
    expect(await count(bundle)).toBe(0);
  });

  test('ENG-10: a dedupe key adds one job, whoever comes at once', async () => {
    const bundle = await engine();
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        i % 2
          ? bundle.tallyman.enqueue(noop, { i }, { dedupeKey: 'pallet-7' })
          : bundle.tallyman
              .enqueueMany(noop, [
                { payload: { i }, dedupeKey: 'pallet-7' },
                { payload: { i }, dedupeKey: 'pallet-7' },
              ])
              .then(([first]) => first),
      ),
    );
    expect(new Set(answers.map((answer) => answer?.id)).size).toBe(1);
    expect(answers.filter((answer) => answer?.existing === false)).toHaveLength(1);
    expect(await count(bundle)).toBe(1);
    const other = await bundle.tallyman.enqueue(noop, {}, { dedupeKey: 'pallet-7', tenantId: 'other' });
    expect(other.existing).toBe(false);
  });

  test('ENG-10: the key is kept while history is, or as the kind says', async () => {
    const bundle = await engine();
    const brief = defineKind({ name: 'brief', dedupe: { keep: { ms: 0 } }, handler: () => {} });
    const forever = defineKind({ name: 'forever', dedupe: { keep: 'forever' }, handler: () => {} });
    await bundle.work({ kinds: [noop, brief, forever] });
    for (const kind of [noop, brief, forever])
      await bundle.tallyman.enqueue(kind as typeof noop, {}, { dedupeKey: 'k' });
    await until('all ran', async () => (await count(bundle)) === 0);
    expect((await bundle.tallyman.enqueue(noop, {}, { dedupeKey: 'k' })).existing).toBe(true);
    expect((await bundle.tallyman.enqueue(brief, {}, { dedupeKey: 'k' })).existing).toBe(false);
    expect((await bundle.tallyman.enqueue(forever, {}, { dedupeKey: 'k' })).existing).toBe(true);
    await until('all ran', async () => (await count(bundle)) === 0);
    await bundle.rows(`update tallyman.dedupe_keys set expires_at = expires_at - interval '30 days'`);
    expect((await bundle.tallyman.enqueue(noop, {}, { dedupeKey: 'k' })).existing).toBe(false);
    expect((await bundle.tallyman.enqueue(forever, {}, { dedupeKey: 'k' })).existing).toBe(true);
  });

  test('ENG-11: a bad payload is refused with the path of the bad field', async () => {
    const bundle = await engine();
    const kind = defineKind({
      name: 'shaped',
      schema: z.object({ lines: z.array(z.object({ epc: z.string() })) }),
      handler: () => {},
    });
    const bad = { lines: [{ epc: 'a' }, { epc: 5 }] } as never;
    await expect(bundle.tallyman.enqueue(kind, bad)).rejects.toMatchObject({
      code: 'VALIDATION_ERROR',
      message: expect.stringContaining('lines.1.epc'),
    });
    await expect(
      bundle.tallyman.enqueueMany(kind, [{ payload: { lines: [] } }, { payload: bad }]),
    ).rejects.toMatchObject({ code: 'VALIDATION_ERROR' });
    expect(await count(bundle)).toBe(0);
  });

  test('bad options: one clear message each, nothing written', async () => {
    const bundle = await engine({ jobs: { maxPayloadBytes: 1000 } });
    const refusals: [object, RegExp][] = [
      [{ delayMs: -1 }, /delayMs must not be negative, got -1/],
      [{ delayMs: Number.NaN }, /delayMs must not be negative/],
      [{ scheduledAt: new Date('x') }, /scheduledAt is not a date/],
      [{ lane: 'é'.repeat(129) }, /lane must be at most 256 bytes, got 258/],
      [{ lane: '' }, /lane must be a text that is not empty/],
      [{ priority: 7 }, /priority must be 0 \(critical\), 1, 2 or 3 \(low\), got 7/],
      [{ maxAttempts: 0 }, /maxAttempts must be a whole number from 1/],
      [{ dedupeKey: 'x'.repeat(513) }, /dedupeKey must be at most 512 bytes/],
      [{ tenantId: 'a\0b' }, /NUL/],
    ];
    for (const [options, message] of refusals)
      await expect(bundle.tallyman.enqueue(noop, {}, options)).rejects.toThrow(message);
    await expect(bundle.tallyman.enqueue(noop, { text: 'ü'.repeat(600) })).rejects.toMatchObject({
      code: 'PAYLOAD_TOO_LARGE',
      message: expect.stringContaining('1211 bytes; the limit is 1000'),
    });
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    await expect(bundle.tallyman.enqueue(noop, circular)).rejects.toThrow(/JSON|circular/i);
    expect(await count(bundle)).toBe(0);
    expect(() => defineKind({ name: '', handler: () => {} })).toThrow(/kind name/);
    expect(() => defineKind({ name: 'x', priority: 9 as never, handler: () => {} })).toThrow(/priority/);
  });

  test.each<[string, EnqueueOptions]>([
    ['alike', {}],
    ['each its own', { delayMs: 0 }],
  ])(
    'ENG-2: a transaction has its id before it draws a position: floors rest on that (%s)',
    async (_, options) => {
      const bundle = await engine();
      // A position is drawn by then, and the row, which would give the transaction an id, is not written yet.
      await bundle.rows(`create function watch() returns trigger language plpgsql as $$ begin
        if pg_current_xact_id_if_assigned() is null then raise exception 'no id yet'; end if; return new; end $$;
      create trigger watch before insert on tallyman.jobs for each row execute function watch()`);
      // Now and then a sequence writes to the log, which gives an id, too; not so soon after the last time.
      await bundle.rows(`select nextval('tallyman.positions')`);
      await bundle.tallyman.enqueue(noop, {}, options);
      expect(await count(bundle)).toBe(1);
    },
  );

  test.each<[string, (i: number) => EnqueueOptions]>([
    ['alike', () => ({})],
    ['each its own', (i) => ({ tenantId: `t-${i}` })],
    ['in a lane', () => ({ lane: 'one' })],
  ])('payloads come back as they were given, in order (%s)', async (_, options) => {
    const bundle = await engine();
    const payloads = [
      null,
      'text',
      0,
      [],
      { deep: { '\u2028 "quotes" \\ ': ['\n', '\ud83d\ude00', '\\u0000'] } },
      1.5e300,
    ];
    const got: unknown[] = [];
    const kind = defineKind<unknown>({ name: 'echo', handler: (p) => void got.push(p) });
    await bundle.tallyman.enqueueMany(
      kind,
      payloads.map((payload, i) => ({ payload, ...options(i) })),
    );
    await bundle.work({ kinds: [kind] });
    await until('all ran', () => got.length === payloads.length);
    expect(got).toEqual(payloads);
  });

  test('a NOTIFY is not sent in every transaction of a busy producer: the first, and one afterwards', async () => {
    const bundle = await engine();
    const { heard, end } = await listening(bundle.url);
    const notifier = new Notifier(bundle.tallyman.database, [], 200);
    const queues = ['default', 'plant'];
    const carried = Array.from({ length: 50 }, () => notifier.inTransaction(queues));
    expect(carried.filter(Boolean)).toHaveLength(1);
    const hints = queues.map((queue) => ({ queue }));
    for (const isCarried of carried) notifier.committed(hints, isCarried);
    await until('the trailing hint came', () => heard.length >= 2);
    await end();
    expect(heard.sort()).toEqual(queues);
  });

  test('a transaction that carries the NOTIFY pays for those before it; brokers are told each time', async () => {
    const bundle = await engine();
    const { heard, end } = await listening(bundle.url);
    const published: (string | null)[] = [];
    const broker = { publish: async (hint: { queue: string | null }) => void published.push(hint.queue) };
    const notifier = new Notifier(bundle.tallyman.database, [broker as unknown as Wakeup], 100);
    const enqueue = () => notifier.committed([{ queue: 'default' }], notifier.inTransaction(['default']));
    enqueue();
    expect(published).toEqual(['default']);
    enqueue();
    expect(notifier.inTransaction(['default'])).toBe(false);
    const before = performance.now();
    while (performance.now() - before < 100);
    expect(notifier.inTransaction(['default'])).toBe(true);
    await sleep(200);
    // No NOTIFY is sent on its own: none is owed. Brokers hear of the second, too.
    expect(heard).toEqual([]);
    expect(published).toEqual(['default', 'default']);
    enqueue();
    notifier.committed([{ queue: 'plant' }]);
    await until('what nobody carried is told', () => heard.length > 0);
    await end();
    expect(heard).toEqual(['plant']);
    expect(published).toEqual(['default', 'default', 'default', 'plant']);
  });
});
