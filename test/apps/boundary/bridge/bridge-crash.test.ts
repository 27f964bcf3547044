/** `tallyman serve` in two zones, killed between the append and the cursor, and between the events and the cursor. */
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { type Started, start } from '../../../cli/support.ts';
import { until } from '../../../support/until.ts';
import { type Place, pairedZones } from '../zones.ts';

const serve = ({ env, folder }: Place, rules: Readonly<Record<string, unknown>>): Started =>
  start('src/cli/main.ts', ['serve', '--only', 'boundary', '--migrate'], {
    cwd: folder,
    env: {
      ...env,
      ...Object.fromEntries(Object.entries(rules).map(([name, value]) => [name, JSON.stringify(value)])),
    },
  });

const serving = async (started: Started): Promise<Started> => {
  await started.said(/"boundary +zone [a-z-]+ on https/);
  return started;
};

const kill = async ({ child, ended }: Started): Promise<void> => {
  child.kill('SIGKILL');
  await ended;
};

/** Nobody can change a row of the table meanwhile; rows can be read, and locked. */
async function frozen({ url }: Place, table: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin');
  await client.query(`lock table ${table} in share mode`);
  return async () => void (await client.query('rollback'));
}

const numberOf = async ({ rows }: Place, sql: string): Promise<number> =>
  Number((await rows<{ count: string }>(sql))[0]?.count);

const waitsFor = (place: Place, statement: string): Promise<boolean> =>
  numberOf(
    place,
    `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and query ~ '${statement}'`,
  ).then((count) => count > 0);

test('BND-16: either node killed in the middle, again and again: every event is one fact, in order, and one event on the other side', async () => {
  const { plant, enterprise } = await pairedZones();
  const servePlant = () =>
    serving(
      serve(plant, {
        TALLYMAN_BOUNDARY_EVENTS_AS_FACTS: [{ event: 'rfid.*', to: 'enterprise', predicate: 'moved_to' }],
      }),
    );
  const serveEnterprise = () => serving(serve(enterprise, { TALLYMAN_BOUNDARY_FACTS_AS_EVENTS: [{}] }));
  let plantProcess = await servePlant();
  let enterpriseProcess = await serveEnterprise();

  let emitted = 0;
  const emit = async (count: number): Promise<void> => {
    await plant.rows(
      `select tallyman_events.emit('rfid.movement', 'basket', 'B' || n % 10, json_build_object('n', n))
         from generate_series($1::int, $2::int) n`,
      [emitted + 1, emitted + count],
    );
    emitted += count;
  };
  const appended = () =>
    numberOf(
      plant,
      `select coalesce(max(next_offset), 1) - 1 as count from tallyman.log_streams where name = 'boundary/store/plant-a/enterprise'`,
    );
  const arrived = () =>
    numberOf(
      enterprise,
      `select coalesce(max(source_offset), 0) as count from boundary.streams where buffer = 'forward'`,
    );

  /** Both hand-offs are up, and the listener has seen the events about that. */
  const quiet = (): Promise<void> =>
    until('nothing is on its way in the plant', async () => {
      const [row] = await plant.rows<{ quiet: boolean }>(
        `select (select count(*) from boundary.handoffs where mode = 'normal') = 2
                and not tallyman_events.has_news('boundary:enterprise') as quiet`,
      );
      return row?.quiet === true;
    });

  for (let round = 1; round <= 2; round++) {
    await quiet();
    // The facts are durable, and the cursor of the listener has not moved.
    const thaw = await frozen(plant, 'tallyman_events.listeners');
    await emit(100);
    await until('the facts are in', async () => (await appended()) === emitted);
    await until('the cursor waits', () => waitsFor(plant, 'update tallyman_events.listeners'));
    await kill(plantProcess);
    await thaw();
    await emit(20);
    plantProcess = await servePlant();
  }
  for (let round = 1; round <= 2; round++) {
    // The facts have arrived, their events are written, and neither they nor the cursor are committed.
    const thaw = await frozen(enterprise, 'boundary.consumers');
    await emit(100);
    await until('they have arrived', async () => (await arrived()) === emitted);
    await until('the cursor waits', () => waitsFor(enterprise, 'update boundary.consumers'));
    await kill(enterpriseProcess);
    await thaw();
    enterpriseProcess = await serveEnterprise();
  }
  const told = () =>
    numberOf(enterprise, `select count(*) from tallyman_events.events where event_type ~ 'fact'`);
  await until('all are told', async () => (await told()) >= emitted);
  await quiet();
  expect(await appended()).toBe(emitted);
  const events = await enterprise.rows<{ n: number; offset: number }>(
    `select (v.payload #>> '{object,payload,n}')::int as n, (v.payload ->> 'offset')::int as "offset"
       from tallyman_events.events v where v.event_type = 'boundary.fact.received' order by v.id`,
  );
  expect(events).toEqual(Array.from({ length: emitted }, (_, i) => ({ n: i + 1, offset: i + 1 })));
}, 300_000);
