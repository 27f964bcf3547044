import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { describe, expect, test } from 'vitest';
import type { ReplayOptions } from '../../../src/apps/rfid/replay/replay.ts';
import type { Queryable } from '../../../src/engine/database/database.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { collect, effects, replayOf, wandering } from './replay-support.ts';
import { type Plant, plant } from './support.ts';

/** One crash, after so many statements: by a throw, or by the end of the connection where there is one to end. */
class Fault {
  hit = false;
  #left: number;
  readonly #kills: boolean;

  constructor(after: number, kills: boolean) {
    this.#left = after;
    this.#kills = kills;
  }

  async pass(kill?: () => Promise<unknown>): Promise<void> {
    this.#left -= 1;
    if (this.#left !== 0) return;
    this.hit = true;
    if (!kill || !this.#kills) throw new Error('crash');
    await kill();
  }

  /** A fault point after each statement. */
  around(on: Queryable, killer?: Queryable): Queryable {
    const kill = killer && (() => terminate(on, killer));
    return {
      query: async <Row extends pg.QueryResultRow>(text: string, values?: unknown[]) => {
        const answer = await on.query<Row>(text, values);
        await this.pass(kill);
        return answer;
      },
    };
  }
}

async function terminate(session: Queryable, by: Queryable): Promise<void> {
  const { rows } = await session.query<{ pid: number }>('select pg_backend_pid() as pid');
  await by.query('select pg_terminate_backend($1, 5000)', [rows[0]?.pid]);
}

/** A replay with fault points after every statement: in transactions, after their commits, and while it reads. */
function fragile(bundle: Plant, fault: Fault): ReturnType<typeof replayOf> {
  const { tallyman } = bundle;
  const exclusively: ReplayOptions['exclusively'] = (id, work, options) =>
    tallyman.exclusively(
      id,
      (section) =>
        work({
          signal: section.signal,
          transaction: async (inner) => {
            const answer = await section.transaction((tx) => inner(fault.around(tx, tallyman.database)));
            // Committed, and nobody was told.
            await fault.pass();
            return answer;
          },
        }),
      options,
    );
  return replayOf(bundle, { exclusively, on: fault.around(tallyman.database) });
}

const startAgain = ({ rows }: Plant) =>
  rows(`truncate iot.tag_reads, rfid.baskets, rfid.movements, rfid.tag_read_processings, tallyman.checkpoints
        restart identity`);

/** Ends sessions that are at work, one now and then, until it is told that it is enough; tells each. */
async function killSessions({ tallyman }: Plant, enough: () => boolean, onKill: () => void): Promise<void> {
  const random = seededRandom();
  const client = await tallyman.database.dedicated('reaper');
  while (!enough()) {
    const { rowCount } = await client.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name in ('tallyman', 'tallyman exclusive section')
          and xact_start is not null order by random() limit 1`,
    );
    if (!rowCount) continue;
    onKill();
    await sleep(random.between(20, 60));
  }
  await client.end();
}

/** Asks until it is answered, as the broker does with what nobody acknowledged. */
async function persist<T>(attempt: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await attempt();
    } catch {
      await sleep(5);
    }
  }
}

describe('replay and crashes', () => {
  test.each([
    ['a throw', false],
    ['a killed connection', true],
  ])(
    'RFID-9: %s between any two statements loses nothing and repeats nothing',
    async (_, kills) => {
      const bundle = await plant();
      await bundle.processor.processTagReads(wandering(30));
      const expected = await effects(bundle);
      let after = 0;
      for (let hit = true; hit; ) {
        await startAgain(bundle);
        await collect(bundle.tallyman.database, wandering(30));
        after += 1;
        const fault = new Fault(after, kills);
        const outcome = await fragile(bundle, fault)
          .catchUp()
          .catch(() => 'crashed');
        hit = fault.hit;
        expect(outcome === 'crashed').toBe(hit);
        await replayOf(bundle).catchUp();
        expect(await effects(bundle)).toEqual(expected);
        expect(await replayOf(bundle).catchUp()).toMatchObject({ read: 0 });
      }
      expect(after).toBeGreaterThan(25);
    },
    600_000,
  );

  test.each([
    ['MQTT first', (mqtt: () => Promise<unknown>, replay: () => Promise<unknown>) => mqtt().then(replay)],
    ['replay first', (mqtt: () => Promise<unknown>, replay: () => Promise<unknown>) => replay().then(mqtt)],
    [
      'at once',
      (mqtt: () => Promise<unknown>, replay: () => Promise<unknown>) => Promise.all([mqtt(), replay()]),
    ],
  ])(
    'RFID-2, RFID-9: the same reads by MQTT and by replay, %s, with killed connections: one effect each',
    async (_, both) => {
      const bundle = await plant();
      const { tallyman, processor, rows } = bundle;
      const reads = wandering(300);
      await collect(tallyman.database, reads);
      const mqtt = async (): Promise<void> => {
        for (let i = 0; i < reads.length; i += 20)
          await persist(() => processor.processTagReads(reads.slice(i, i + 20)));
      };
      const replay = async (): Promise<void> => {
        await persist(() => replayOf(bundle).catchUp());
      };
      let over = false;
      let kills = 0;
      const reaper = killSessions(
        bundle,
        // On a slow machine kills without end would let nothing through.
        () => over || kills >= 15,
        () => {
          kills += 1;
        },
      );
      try {
        // A quick machine may be through before the first kill: the same reads again have no other effect.
        do await both(mqtt, replay);
        while (kills === 0);
      } finally {
        over = true;
      }
      await reaper;
      expect(
        await rows(`select count(*)::int as n, count(distinct content_hash)::int as different,
                         count(error_message)::int as failed from rfid.tag_read_processings`),
      ).toEqual([{ n: 300, different: 300, failed: 0 }]);
      expect(await rows('select count(*)::int as n from rfid.baskets')).toEqual([{ n: 10 }]);
      // A movement is the work of exactly one read.
      expect(
        await rows(`select m.id from rfid.movements m left join rfid.tag_read_processings p
                      on p.movement_id = m.id and p.skip_reason is null group by m.id having count(p.id) <> 1`),
      ).toEqual([]);
    },
    600_000,
  );

  test('RFID-9: an instance that lost its lock in the middle cannot commit; another has gone on', async () => {
    const bundle = await plant();
    const { tallyman } = bundle;
    await bundle.processor.processTagReads(wandering(30));
    const expected = await effects(bundle);
    await startAgain(bundle);
    await collect(tallyman.database, wandering(30));
    let another: unknown;
    const paused = replayOf(bundle, {
      exclusively: (id, work, options) =>
        tallyman.exclusively(
          id,
          (section) =>
            work({
              signal: section.signal,
              transaction: (inner) =>
                section.transaction(async (tx) => {
                  if (another) return inner(tx);
                  await terminate(tx, tallyman.database);
                  another = await replayOf(bundle).catchUp();
                  return inner(tx);
                }),
            }),
          options,
        ),
    });
    await expect(paused.catchUp()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect(another).toMatchObject({ processed: 30 });
    expect(await effects(bundle)).toEqual(expected);
  });
});
