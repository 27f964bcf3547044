/** What goes wrong between and in two zones, at random: the line, the nodes, the databases, also at the same time. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Random, randomOf } from '../../support/random.ts';
import type { Line } from './line.ts';
import type { Zone } from './zone.ts';

export interface Counts {
  cuts: number;
  disturbances: number;
  kills: number;
  crashes: number;
}

export interface Scene {
  readonly line: Line;
  readonly zones: readonly [Zone, Zone];
}

/** Ends after this time with everything whole: the line, the databases, the nodes. */
export async function makeTrouble({ line, zones }: Scene, seconds: number, seed: number): Promise<Counts> {
  const counts: Counts = { cuts: 0, disturbances: 0, kills: 0, crashes: 0 };
  const until = performance.now() + seconds * 1000;
  const goesOn = (): boolean => performance.now() < until;
  // Numbers of its own for each, so that what one does does not depend on how fast another one is.
  const [ofLine, ofPlant, ofEnterprise] = [randomOf(seed), randomOf(seed + 1), randomOf(seed + 2)];
  await Promise.all([
    troubleOnLine(line, ofLine, counts, goesOn),
    troubleIn(zones[0], ofPlant, counts, goesOn),
    troubleIn(zones[1], ofEnterprise, counts, goesOn),
  ]);
  return counts;
}

async function troubleOnLine(
  line: Line,
  random: Random,
  counts: Counts,
  goesOn: () => boolean,
): Promise<void> {
  try {
    while (goesOn()) {
      await sleep(random.between(200, 3000));
      if (random.chance(0.5)) {
        await line.cut(random);
        counts.cuts += 1;
        // Now and then for longer than it takes to give a connection up.
        await sleep(random.chance(0.1) ? 25_000 * random.next() : random.between(50, 4000));
      } else {
        await line.disturb(random);
        counts.disturbances += 1;
        await sleep(random.between(1000, 5000));
      }
      await line.heal();
    }
  } finally {
    await line.heal();
  }
}

async function troubleIn(zone: Zone, random: Random, counts: Counts, goesOn: () => boolean): Promise<void> {
  while (goesOn()) {
    await sleep(random.between(1000, 6000));
    const what = random.of(['node', 'database', 'database', 'both'] as const);
    if (what !== 'node') {
      await zone.crashDatabase(random.of(['SIGKILL', 'SIGQUIT']));
      counts.crashes += 1;
    }
    if (what !== 'database') {
      await zone.killNode();
      counts.kills += 1;
    }
    await sleep(random.between(0, 2000));
    // A node may start before its database does.
    if (what !== 'database') zone.serve();
    if (what !== 'node') await zone.restartDatabase();
    await zone.serving();
  }
}
