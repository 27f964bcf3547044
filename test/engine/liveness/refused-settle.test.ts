import { expect, onTestFinished, test } from 'vitest';
import { defineKind, type JobError } from '../../../src/engine/index.ts';
import { allEnded, type Stage, stage } from '../../support/liveness.ts';

/** What handlers throw, each of them as it is. */
const thrown: Record<string, () => unknown> = {
  'a lone surrogate in the message': () => new Error('half \ud800 of a pair'),
  'a lone surrogate in the code': () => Object.assign(new Error('x'), { code: '\udfff' }),
  'a NUL': () => new Error('zero \0 byte'),
  'a plain object': () => ({ code: 'X', why: 'yellow' }),
  'a proxy that refuses everything': () =>
    new Proxy(
      {},
      {
        get() {
          throw new Error('no reading');
        },
        getPrototypeOf() {
          throw new Error('no prototype');
        },
        ownKeys() {
          throw new Error('no keys');
        },
      },
    ),
  'an object whose toString throws': () => ({
    toString() {
      throw new Error('no text');
    },
  }),
  'an error whose message throws': () =>
    Object.defineProperty(new Error(), 'message', {
      get() {
        throw new Error('no message');
      },
    }),
  'an error whose message is an object': () => Object.assign(new Error(), { message: { deep: 1 } }),
  'an object without a prototype': () => Object.create(null),
  undefined: () => undefined,
  null: () => null,
  'a symbol': () => Symbol('sign'),
  'a function': () => () => 'f',
  'a bigint': () => 12n,
  'a cycle': () => {
    const cycle: Record<string, unknown> = { name: 'round' };
    cycle.self = cycle;
    return cycle;
  },
  'a huge string': () => 'x'.repeat(50_000_000),
  'an error with a huge message': () => new Error('y'.repeat(50_000_000)),
};

async function work(scene: Stage, kinds: Parameters<Stage['tallyman']['worker']>[0]['kinds']): Promise<void> {
  const worker = scene.tallyman.worker({ kinds, pollIntervalMs: 100, stopTimeoutMs: 2000 });
  onTestFinished(() => worker.stop());
  await worker.start();
}

test.each(Object.keys(thrown))(
  'ENG-19: a handler throws %s: it ends as a dead letter, the others as they should',
  async (what) => {
    const scene = await stage();
    const { tallyman, rows } = scene;
    const kind = defineKind<{ n: number }>({
      name: 'strange',
      retry: { maxAttempts: 1 },
      handler: () => {
        throw thrown[what]?.();
      },
    });
    const ordinary = defineKind<{ n: number }>({
      name: 'ordinary',
      retry: { maxAttempts: 1 },
      handler: ({ n }) => {
        if (n % 2 === 0) throw new Error(`ordinary ${n}`);
      },
    });
    const strange = await tallyman.enqueue(kind, { n: 0 });
    await tallyman.enqueueMany(
      ordinary,
      Array.from({ length: 10 }, (_, n) => ({ payload: { n } })),
    );
    const inLane = await tallyman.enqueue(kind, { n: 1 }, { lane: 'a' });
    await tallyman.enqueue(ordinary, { n: 11 }, { lane: 'a' });
    await work(scene, [kind, ordinary]);
    await allEnded(scene);
    const letters = await rows<{ id: string; kind: string; last_error: JobError }>(
      'select id, kind, last_error from tallyman.dead_letters order by id',
    );
    const of = (name: string) => letters.filter((letter) => letter.kind === name);
    expect(of('strange').map((letter) => letter.id)).toEqual([strange.id, inLane.id]);
    for (const { last_error } of of('strange')) {
      expect(last_error.code).toBeTypeOf('string');
      expect(last_error.message).toBeTypeOf('string');
      expect(last_error.message.length).toBeLessThan(200_000);
    }
    expect(of('ordinary').map((letter) => letter.last_error.message)).toEqual(
      [0, 2, 4, 6, 8].map((n) => `ordinary ${n}`),
    );
    expect(await rows('select status, count(*)::integer as n from tallyman.history group by 1')).toEqual([
      { status: 'SUCCEEDED', n: 6 },
    ]);
    const [first] = of('strange');
    if (what === 'a plain object') {
      expect(first?.last_error.code).toBe('X');
      expect(first?.last_error.message).toContain('yellow');
    }
    if (what === 'a cycle') expect(first?.last_error.message).toContain('round');
    if (what === 'a symbol') expect(first?.last_error.message).toContain('sign');
  },
);

test('ENG-19: a completion that the database refuses ends that job; the others are confirmed', async () => {
  const scene = await stage();
  const { tallyman, rows } = scene;
  const kind = defineKind<{ n: number }>({ name: 'k', retry: { backoff: () => 20 }, handler: () => {} });
  const jobs = await tallyman.enqueueMany(
    kind,
    Array.from({ length: 30 }, (_, n) => ({ payload: { n }, ...(n >= 20 && { lane: 'a' }) })),
  );
  const refused = [jobs[7]?.id, jobs[23]?.id] as string[];
  await rows(`create function refuse() returns trigger language plpgsql as $$
    begin
      if new.id in (${refused.join(', ')}) and new.status = 'SUCCEEDED' then
        raise exception 'refused by the test';
      end if;
      return new;
    end $$`);
  await rows(
    'create trigger refuse before insert on tallyman.history for each row execute function refuse()',
  );
  await work(scene, [kind]);
  await allEnded(scene);
  expect(
    await rows(
      `select id, 'ended' as status from tallyman.history where status = 'FAILED'
        union all select id, 'ended' from tallyman.dead_letters order by id`,
    ),
  ).toEqual(refused.map((id) => ({ id, status: 'ended' })));
  const confirmed = await rows<{ id: string }>(
    `select id from tallyman.history where status = 'SUCCEEDED' order by id`,
  );
  expect(confirmed.map((row) => row.id)).toEqual(
    jobs.map((job) => job.id).filter((id) => !refused.includes(id)),
  );
});
