import { describe, expect, test } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { amiss, completedStale, drained, drawn, expectFinishedOnce, Fleet, scene } from '../support/chaos.ts';
import { isOnce, LaneWriter, laneNames } from '../support/chaos-writers.ts';
import { engine, takeTurn, until } from '../support/engine.ts';
import { seededRandom } from '../support/seeded-random.ts';

const quick = { leaseMs: 1500, renewMs: 500, recoverIntervalMs: 500, pollIntervalMs: 200, maxPrefetch: 30 };

describe('SIGKILL of workers', () => {
  test('ENG-4, ENG-8, LANE-4: 50 SIGKILLs, 20,000 jobs in 500 lanes: 0 lost, 0 out of order, 0 effects twice', {
    timeout: 600_000,
  }, async () => {
    const random = seededRandom();
    const bundle = await scene();
    const [kills, jobs] = [50, 20_000];
    const fleet = new Fleet({ url: bundle.url, options: { ...quick, concurrency: 12 } });
    const began = performance.now();
    await fleet.start(4);

    const writers = laneNames(500, 4).map((lanes) => new LaneWriter(bundle, random, lanes));
    const each = jobs / writers.length;
    // There is always work to be killed in: the writers keep pace with the killing.
    const written = Promise.all(
      writers.map((writer) => writer.write(each, () => (each * (fleet.kills + 4)) / kills)),
    );
    await fleet.killAlong(random, kills, 8000, () => drawn(bundle, 'effects_id_seq'));
    await written;
    const killedAfter = performance.now() - began;
    await drained(bundle);
    const took = performance.now() - began;

    expect(await amiss(bundle)).toEqual({});
    await expectFinishedOnce(bundle, jobs);
    const expected = writers.flatMap((writer) => writer.acknowledged);
    const [seen] = await bundle.rows<{ effects: number; plain: number; again: number; after: number }>(
      `select (select count(*) from effects)::int as effects, (select count(distinct job) from runs)::int as plain,
              (select count(*) - count(distinct job) from runs)::int as again,
              (select count(*) from tallyman.history where attempts > 1)::int as after`,
    );
    expect(expected).toHaveLength(jobs);
    expect(seen?.effects).toBe(expected.filter((job) => job.once).length);
    expect(seen?.plain).toBe(expected.filter((job) => !job.once).length);
    // And what each lane holds is what was put there, from first to last.
    const lanes = await bundle.rows<{ lane: string; order: number[] }>(
      'select lane, array_agg(i order by id) as order from effects group by lane',
    );
    const length = new Map<string, number>();
    for (const { lane, i } of expected) length.set(lane, Math.max(length.get(lane) ?? 0, i + 1));
    expect(lanes).toHaveLength(500);
    for (const { lane, order } of lanes)
      expect({ lane, order }).toEqual({
        lane,
        order: Array.from({ length: length.get(lane) ?? 0 }, (_, i) => i).filter(isOnce),
      });
    console.info(
      `chaos: ${fleet.kills} SIGKILLs in ${(killedAfter / 1000).toFixed(1)} s, ${jobs} jobs in 500 lanes done after ` +
        `${(took / 1000).toFixed(1)} s; ${seen?.again} plain runs repeated, ${seen?.after} jobs finished after a counted crash`,
    );
  });

  test('ENG-4, ENG-5: killed in the middle of thousands of free jobs: each finished once, none buried', {
    timeout: 300_000,
  }, async () => {
    const random = seededRandom();
    const bundle = await scene();
    const fleet = new Fleet({ url: bundle.url, options: { ...quick, concurrency: 12 } });
    await fleet.start(3);
    const jobs = 6000;
    const written = (async () => {
      for (let n = 0; n < jobs; n += 200) {
        await bundle.tallyman.enqueueMany(
          bundle.kinds.ordinary,
          Array.from({ length: 200 }, (_, i) => ({ payload: { i: n + i, ms: random.whole(8) } })),
        );
        await until(
          'the workers have come near',
          async () => n + 200 - (await drawn(bundle, 'runs_id_seq')) < 1500,
          240_000,
        );
      }
    })();
    await fleet.killAlong(random, 20, 5000, () => drawn(bundle, 'runs_id_seq'));
    await written;
    await drained(bundle);
    await expectFinishedOnce(bundle, jobs);
    expect(await completedStale(bundle)).toEqual([]);
    const [runs] = await bundle.rows<{ jobs: number; again: number; counted: number }>(
      `select count(distinct job)::int as jobs, (count(*) - count(distinct job))::int as again,
              (select count(*) from tallyman.history where attempts > 1)::int as counted from runs`,
    );
    expect(runs?.jobs).toBe(jobs);
    // Only who was alone in a worker when it was killed is charged: one a kill at the most.
    expect(runs?.counted).toBeLessThanOrEqual(fleet.kills);
    console.info(
      `chaos: ${fleet.kills} SIGKILLs, ${jobs} free jobs; ${runs?.again} runs repeated, ${runs?.counted} attempts counted`,
    );
  });

  test('ENG-5: a job that kills its worker is buried with its attempts used up, its neighbours lose none', {
    timeout: 300_000,
  }, async () => {
    const bundle = await scene();
    const fleet = new Fleet({
      url: bundle.url,
      // Found by its absence; a live one must not lose its lease, which would cost an attempt.
      options: { ...quick, leaseMs: 9900, renewMs: 500, concurrency: 10 },
    });
    const neighbours = (n: number, lane?: string) =>
      bundle.tallyman.enqueueMany(
        bundle.kinds.ordinary,
        Array.from({ length: n }, (_, i) => ({ payload: { i, ms: 5 }, ...(lane && { lane }) })),
      );
    await neighbours(40);
    const { id } = await bundle.tallyman.enqueue(bundle.kinds.poison, { i: 0 });
    await neighbours(40);
    await neighbours(5, 'a lane');
    const inLane = await bundle.tallyman.enqueue(bundle.kinds.poison, { i: 5 }, { lane: 'a lane' });
    await neighbours(5, 'a lane');
    await fleet.start(2);
    let deaths = 0;
    await until(
      'all is done or buried',
      async () => {
        for (const worker of fleet.all)
          if (worker.end) {
            expect(worker.end).toBe('SIGKILL');
            deaths += 1;
            fleet.replace(worker);
          }
        return (await bundle.rows('select 1 from tallyman.jobs limit 1')).length === 0;
      },
      240_000,
    );
    expect(
      await bundle.rows(
        `select id, attempts, last_error ->> 'code' as code from tallyman.dead_letters order by id`,
      ),
    ).toEqual([
      { id, attempts: 3, code: 'LEASE_EXPIRED' },
      { id: inLane.id, attempts: 3, code: 'LEASE_EXPIRED' },
    ]);
    expect(
      await bundle.rows('select status, attempts, count(*)::int as n from tallyman.history group by 1, 2'),
    ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 90 }]);
    // Three that count for each, and those in which it died beside others.
    expect(deaths).toBeGreaterThanOrEqual(6);
    console.info(`chaos: two poisoned jobs took ${deaths} workers with them, 90 neighbours lost no attempt`);
  });

  test('ENG-5: what a worker held for long is found again, also when everything behind it was recovered before', async () => {
    const bundle = await engine();
    const kind = defineKind<{ n: number }>({ name: 'k', handler: () => {} });
    const jobs = await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 4 }, (_, n) => ({ payload: { n } })),
    );
    const ids = jobs.map((job) => job.id);
    const recovered = async (worker: string) => {
      await bundle.rows(`update tallyman.claims set expires_at = now() - interval '1 s' where worker = $1`, [
        worker,
      ]);
      await bundle.rows(`select tallyman.recover('{}', '{}', 1000000)`);
    };
    const taken = async (worker: string, more: object) =>
      (await takeTurn(bundle, worker, { kinds: ['k'], ...more })).jobs.map((job) => job.id);
    expect(await taken('slow', { total: 2 })).toEqual(ids.slice(0, 2));
    expect(await taken('quick', { total: 2 })).toEqual(ids.slice(2));
    await recovered('quick');
    // They are done, and look after look finds nothing more to be taken alone: the floor follows.
    for (const id of ids.slice(2)) expect(await taken('next', { isolated: 'suspect' })).toEqual([id]);
    await bundle.rows(`delete from tallyman.jobs where id = any ($1)`, [ids.slice(2)]);
    await bundle.rows(`delete from tallyman.claims where worker = 'next'`);
    for (let i = 0; i < 5; i += 1) expect(await taken('next', { isolated: 'suspect' })).toEqual([]);
    await bundle.tallyman.enqueueMany(kind, [{ payload: { n: 4 } }, { payload: { n: 5 } }]);
    expect(await taken('another', {})).toHaveLength(2);
    await recovered('another');
    for (let i = 0; i < 2; i += 1) expect(await taken('next', { isolated: 'suspect' })).toHaveLength(1);
    for (let i = 0; i < 5; i += 1) expect(await taken('next', { isolated: 'suspect' })).toEqual([]);
    await recovered('slow');
    expect(await taken('last', { isolated: 'suspect', late: false })).toEqual(ids.slice(0, 1));
    expect(await taken('last', { isolated: 'suspect', late: true })).toEqual(ids.slice(1, 2));
  });
});
