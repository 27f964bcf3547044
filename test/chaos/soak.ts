/**
 * Mixed work for as long as you like, with a worker process killed every two seconds:
 *
 *     node test/chaos/soak.ts --minutes 60 --seed 7 [--url postgres://…] [--lease-ms 2000] [--max-rate 200] [--kill-ms 2000]
 *
 * Without --url it starts a PostgreSQL of its own. With one it takes that database: it migrates it and makes a schema
 * `soak` anew; nothing else may use the engine there. Prints a line every ten seconds and a summary; exits with 1 if a
 * rule was broken (soak-checks.ts lists them).
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { startEmbedded, Tallyman } from '../../src/engine/index.ts';
import { randomOf } from '../support/random.ts';
import { brokenRules, Checker, longestWaits, type Violation } from './soak-checks.ts';
import { Driver, SoakFleet } from './soak-driver.ts';
import { soakTables } from './soak-kinds.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
    url: { type: 'string' },
    'lease-ms': { type: 'string' },
    'max-rate': { type: 'string', default: '200' },
    // How often a worker process is killed; 0: never, which tells trouble with crashes from other trouble.
    'kill-ms': { type: 'string', default: '2000' },
  },
});
const seed = Number(values.seed);
const leaseMs = values['lease-ms'] === undefined ? undefined : Number(values['lease-ms']);
const killMs = Number(values['kill-ms']);
/** No job may wait longer for a worker, in seconds, where worker processes start within a second; in proportion on a slower machine. */
const longestWait = 10;
/** After the last enqueue jobs become fewer at least this often, or are stuck. */
const drainMs = 60_000;

const deadlocksSoFar = 'select deadlocks from pg_stat_database where datname = current_database()';

async function soak(url: string): Promise<Violation[]> {
  const tallyman = await Tallyman.open({
    databaseUrl: url,
    // At the end rules are checked against everything that has happened.
    queryTimeoutMs: 0,
    migrate: true,
    applicationName: 'soak',
    poolSize: 8,
  });
  const { database } = tallyman;
  const count = async (sql: string): Promise<number> =>
    Number(Object.values((await database.query(sql)).rows[0] ?? {})[0]);
  const left = () => count('select count(*) from tallyman.jobs');
  await database.query(soakTables);
  const deadlocksBefore = await count(deadlocksSoFar);
  const random = randomOf(seed);
  const fleet = new SoakFleet(url, 3, leaseMs, database);
  try {
    const startedMs = performance.now();
    await fleet.start();
    const slowness = Math.max(1, (performance.now() - startedMs) / 1000 / fleet.size);
    const driver = new Driver(tallyman, random);
    const capacity = await driver.calibrate();
    const rate = Math.min(capacity / 2, Number(values['max-rate']));
    console.log(
      `soak: seed ${seed}, ${values.minutes} min, capacity about ${capacity.toFixed(0)} jobs/s, enqueueing ${rate.toFixed(0)}/s`,
    );
    const checker = new Checker(database);
    const began = Date.now();
    const end = began + Number(values.minutes) * 60_000;
    const isOver = () => Date.now() > end || fleet.strange.length > 0;
    const progress = async (): Promise<void> => {
      const [waiting, starts, overdue] = [
        await left(),
        await count('select coalesce(max(id), 0) from soak.starts'),
        await count(
          `select coalesce(round(extract(epoch from clock_timestamp() - min(scheduled_at))), 0) from tallyman.jobs
            where scheduled_at < clock_timestamp() and lane is null`,
        ),
      ];
      console.log(
        `soak: ${Math.round((Date.now() - began) / 1000)} s, ${driver.enqueued} enqueued, ${starts} starts, ${waiting} live, ` +
          `oldest free job due for ${overdue} s, ${fleet.kills} kills, ${driver.cancelled} cancelled, ${checker.violations.size} problems`,
      );
    };
    const every = async (ms: number, work: () => Promise<void>): Promise<void> => {
      while (!isOver()) {
        await sleep(Math.min(ms, Math.max(0, end - Date.now())));
        await work();
      }
    };
    await Promise.all([
      driver.enqueueUntil(isOver, rate),
      driver.pauseUntil(isOver),
      killMs > 0 && every(killMs, () => fleet.killOne(random)),
      every(1000, () => checker.look()),
      every(10_000, progress),
    ]);
    await drained(left);
    const stuck = await database.query(
      'select id, kind, lane, attempts, scheduled_at, last_error from tallyman.jobs order by id',
    );
    for (let looks = 0; looks < 3; looks += 1) {
      await checker.look();
      await sleep(1000);
    }
    const violations = [...checker.violations.values(), ...(await brokenRules(database))];
    if (stuck.rows.length > 0)
      violations.push({
        rule: `everything ends: none did for ${drainMs / 1000} s`,
        count: stuck.rows.length,
        examples: stuck.rows.slice(0, 5),
      });
    if (fleet.strange.length > 0)
      violations.push({
        rule: 'no worker process ends by itself',
        count: fleet.strange.length,
        examples: fleet.strange.slice(0, 3),
      });
    const deadlocks = (await count(deadlocksSoFar)) - deadlocksBefore;
    if (deadlocks > 0)
      violations.push({ rule: 'no deadlocks (pg_stat_database)', count: deadlocks, examples: [] });
    const waits = await longestWaits(database, 0.2);
    const late = waits.filter((wait) => wait.seconds > longestWait * slowness);
    if (late.length > 0)
      violations.push({
        rule: `no job waits longer than ${(longestWait * slowness).toFixed(0)} s`,
        count: late.length,
        examples: late.slice(0, 5),
      });
    await progress();
    console.log(
      `soak: max wait ${Math.max(0, waits[0]?.seconds ?? 0).toFixed(2)} s; ${driver.enqueued} jobs, ${driver.cancelled} cancelled, ` +
        `${fleet.kills} kills, ${driver.pauses} pauses, ${await count('select count(*) from tallyman.history where attempts > 1')} ended after a failed attempt; ` +
        `tallyman.check() ${checker.exists ? 'was asked every second' : 'does not exist'}`,
    );
    return violations;
  } finally {
    await fleet.killAll();
    await tallyman.close();
  }
}

/** Waits until none is left, for as long as they become fewer. */
async function drained(left: () => Promise<number>): Promise<void> {
  let fewest = Number.POSITIVE_INFINITY;
  for (let end = Date.now() + drainMs; Date.now() < end && fewest > 0; await sleep(100)) {
    const now = await left();
    if (now < fewest) end = Date.now() + drainMs;
    fewest = Math.min(fewest, now);
  }
}

/** A server of its own, gone at the end. */
async function withServer<T>(work: (url: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-soak-'));
  const server = await startEmbedded({
    dataDir: join(folder, 'postgres'),
    settings: { max_connections: '200' },
  });
  try {
    return await work(server.url);
  } finally {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

const violations = await (values.url === undefined ? withServer(soak) : soak(values.url));
for (const { rule, count, examples } of violations) {
  console.log(`soak: BROKEN: ${rule}: ${count}`);
  for (const example of examples) console.log(`  ${JSON.stringify(example)}`);
}
console.log(
  `soak: ${violations.length === 0 ? 'all well' : `${violations.length} rules broken`}, seed ${seed}`,
);
process.exit(violations.length === 0 ? 0 : 1);
