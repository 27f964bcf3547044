import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { withClient } from '../../../lib/postgres.ts';
import type { OpenSystem } from '../system.ts';
import { type Enqueue, HotLane } from '../verify.ts';
import { type Bench, type Measured, settle, type Task } from './bench.ts';
import { now } from './clock.ts';
import { enqueueElsewhere } from './processes.ts';

const LANE = 'hot';
const WRITERS = 4;
/** How long a writer's transaction stays open after its enqueue, in milliseconds. */
const OPEN_FOR = 5;
const RATE = 1_000;
/** Enqueues under way at most; a system that cannot keep up with the pace takes in less. */
const MOST_PENDING = 1_000;
/** How long the worker may go on after the window, in milliseconds; the rest has to be waiting in the store. */
const GRACE = 20_000;

/** What the writing process reports. */
interface Written {
  /** The window, by `now()`. */
  readonly from: number;
  readonly to: number;
  /** By index. */
  readonly enqueues: readonly Enqueue[];
}

/** One lane that is written to while it is worked off: what share of the arriving jobs runs within the window. */
export async function laneHot(bench: Bench): Promise<Measured> {
  const { open, task, tally } = bench;
  const lane = new HotLane(now);
  await settle(bench);
  const stop = await open.work(async (payload) => {
    lane.start(payload);
    // Gives up the event loop for a turn, so that two jobs under way at once meet.
    await nextTurn();
    lane.end();
    tally.mark(payload);
  });
  const { from, to, enqueues } = await enqueueElsewhere<Written>(task);
  for (const deadline = now() + GRACE; lane.ran < enqueues.length && now() < deadline; ) await sleep(20);
  await sleep(50);
  await stop();
  const waiting = await open.unfinished();
  lane.verify(enqueues, waiting);
  const seconds = (to - from) / 1000;
  const into = enqueues.filter(({ acknowledged }) => acknowledged <= to).length;
  const out = lane.ranBetween(from, to);
  return {
    value: out / into,
    extra: { in: into / seconds, out: out / seconds, jobs: enqueues.length, waiting },
  };
}

/** Four writers, each in a transaction of its own that stays open for a while, as a request's would. */
export async function writeInTransactions(open: OpenSystem, { url, size }: Task): Promise<Written> {
  const { enqueueIn } = open;
  if (enqueueIn === undefined) throw new Error('This system cannot enqueue in a transaction.');
  const enqueues: Enqueue[] = [];
  let next = 0;
  const from = now();
  const to = from + size.seconds * 1000;
  const writer = () =>
    withClient(url, async (client) => {
      while (now() < to) {
        const index = next++;
        const begun = now();
        await client.query('begin');
        await enqueueIn(client, { index, lane: LANE });
        await sleep(OPEN_FOR);
        await client.query('commit');
        enqueues[index] = { begun, acknowledged: now() };
      }
    });
  await Promise.all(Array.from({ length: WRITERS }, writer));
  return { from, to, enqueues };
}

/** A thousand single enqueues a second, none waiting for another. */
export async function writePaced(open: OpenSystem, { size }: Task): Promise<Written> {
  const enqueues: Enqueue[] = [];
  let next = 0;
  let pending = 0;
  let failure: unknown;
  const enqueue = async () => {
    const index = next++;
    const begun = now();
    pending += 1;
    await open.enqueue({ index, lane: LANE });
    pending -= 1;
    enqueues[index] = { begun, acknowledged: now() };
  };
  const from = now();
  const to = from + size.seconds * 1000;
  let skipped = 0;
  for (let time = from; time < to && failure === undefined; time = now()) {
    const due = Math.floor(((time - from) / 1000) * RATE);
    while (next + skipped < due) {
      if (pending >= MOST_PENDING) skipped += 1;
      else
        enqueue().catch((error) => {
          failure ??= error;
        });
    }
    await sleep(2);
  }
  while (pending > 0 && failure === undefined) await sleep(5);
  if (failure !== undefined) throw failure;
  return { from, to, enqueues };
}
