import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  fixtureGateway,
  fixtureKind,
  fixtureLanes,
  fixtureSecret,
  fixtureWorker,
} from '../../scripts/fixture/scene.ts';
import { startLabelSimulator } from '../../src/apps/labels/gateways/simulator/index.ts';
import { Gateways, labelKinds, putStore } from '../../src/apps/labels/index.ts';
import { webhookKinds } from '../../src/apps/webhooks/index.ts';
import { engineComponent, migrate, requireMigrated } from '../../src/engine/database/migrate.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { apps } from '../../src/host/apps.ts';
import { componentsOf } from '../../src/host/components.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import { basketTag } from '../../src/simulate/tags.ts';
import { receiver } from '../apps/webhooks/support/receiver.ts';
import { local } from '../apps/webhooks/support/scene.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { OldProgram } from './old-program.ts';

/*
 * Starts from a database of each earlier release, as scripts/release-fixture.ts has written it, and brings it up to date.
 */

const components = [engineComponent, ...componentsOf(apps)];

/** A database of a release, gone with the test. */
async function restored(release: string): Promise<{ url: string; client: pg.Client }> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query(gunzipSync(readFileSync(`test/fixtures/${release}/dump.sql.gz`)).toString());
  return { url, client };
}

/** The same, with the present program on it. */
async function upgraded(release: string): Promise<{ tallyman: Tallyman; client: pg.Client; url: string }> {
  const { url, client } = await restored(release);
  const tallyman = await Tallyman.open({
    ...{
      databaseUrl: url,
      migrate: true,
      components: componentsOf(apps),
      logger: silentLogger,
      poolSize: 12,
    },
  });
  onTestFinished(() => tallyman.close());
  return { tallyman, client, url };
}

type Rows = Readonly<Record<string, readonly string[]>>;

/** Every row of every table, by the columns that the tables had. */
async function contents(client: pg.Client, before?: Rows): Promise<Rows> {
  const { rows: tables } = await client.query<{ name: string }>(
    `select format('%I.%I', n.nspname, c.relname) as name
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p') and not c.relispartition
        and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
        and c.oid not in ('tallyman.migrations'::regclass, 'tallyman.functions'::regclass)`,
  );
  const all: Record<string, string[]> = {};
  for (const { name } of tables) {
    const known = before?.[name]?.[0];
    if (before && known === undefined) continue;
    const columns = known ? Object.keys(JSON.parse(known) as object) : undefined;
    const { rows } = await client.query<{ row: string }>(
      `select (select json_object_agg(e.key, e.value order by e.key) from jsonb_each(to_jsonb(t)) e
                where $1::text[] is null or e.key = any ($1))::text as row
         from ${name} t order by 1`,
      [columns],
    );
    if (rows.length > 0) all[name] = rows.map(({ row }) => row);
  }
  return all;
}

describe.each(readdirSync('test/fixtures'))('from %s', (release) => {
  test('everything is kept, nothing is left that cannot move, and a second run changes nothing', async () => {
    const { url, client } = await restored(release);
    const before = await contents(client);
    expect(Object.keys(before).length).toBeGreaterThan(30);
    const tallyman = await Tallyman.open({
      ...{ databaseUrl: url, migrate: true, components: componentsOf(apps), logger: silentLogger },
    });
    onTestFinished(() => tallyman.close());
    const { 'tallyman.isolated_tables': isolated, ...after } = await contents(client, before);
    const { 'tallyman.isolated_tables': isolatedBefore, ...kept } = before;
    expect(after).toEqual(kept);
    // A list of tables: it grows with new ones.
    expect(isolated).toEqual(expect.arrayContaining([...(isolatedBefore ?? [])]));
    expect(await tallyman.check()).toEqual([]);
    await requireMigrated(tallyman.database, components);
    expect((await migrate(tallyman.database, { components })).applied).toEqual([]);
  });

  test('what may run runs, in order; what may not waits', async () => {
    const { tallyman, client } = await upgraded(release);
    const { database } = tallyman;
    const box = new SecretBox(fixtureSecret);
    const [hook, simulator] = await Promise.all([receiver(), startLabelSimulator()]);
    onTestFinished(() => simulator.close());
    const gateways = new Gateways(box);
    onTestFinished(() => gateways.close());
    for (const tenantId of ['default', 'acme'])
      await database.transaction((tx) =>
        putStore({ tx, tenantId }, box, { code: 's1', gateway: fixtureGateway(simulator.url) }),
      );
    await client.query('update tallyman_webhooks.endpoints set url = $1', [hook.url]);
    const ran: string[] = [];
    const kinds = [
      fixtureKind((name) => ran.push(name)),
      ...labelKinds({ database, gateways, askAfterMs: 60_000 }),
      ...webhookKinds({ database, box, policy: local }),
    ];
    const queues = ['default', 'held', 'paused', 'labels', 'webhooks'];
    const worker = tallyman.worker({ kinds, queues, pollIntervalMs: 100, stopTimeoutMs: 2000 });
    await worker.start();
    onTestFinished(() => worker.stop());

    const free = ['q1', 'q2', 'urgent', 'of acme', 'keyed', 'held 1', 'held 2'];
    const { waiting, held, blocked } = fixtureLanes;
    await until(
      'all that is due has run',
      () => ran.length >= free.length + waiting.length + held.length,
      60_000,
    );
    expect([...ran].sort()).toEqual([...free, ...waiting, ...held].sort());
    for (const lane of [waiting, held])
      expect(ran.filter((name) => lane.includes(name as never))).toEqual(lane);
    await until('webhooks have arrived', () => hook.requests.length === 2, 60_000);
    await until(
      'labels have their images',
      () =>
        ['00159DA00001', '00159DA00002'].every(
          (mac) => simulator.simulation.labels.get(mac)?.images.length === 1,
        ),
      60_000,
    );

    await tallyman.queues.resume('paused');
    await tallyman.lanes.unblock('blocked');
    await until('what a person lets go has run', () => ran.length >= 15, 60_000);
    expect(ran.slice(12).sort()).toEqual([...blocked, 'paused']);
    expect(ran.filter((name) => blocked.includes(name as never))).toEqual(blocked);

    const kind = kinds[0] as ReturnType<typeof fixtureKind>;
    for (const dedupeKey of ['live', 'ended'])
      expect(await tallyman.enqueue(kind, { name: 'again' }, { dedupeKey })).toMatchObject({
        existing: true,
      });
    expect((await tallyman.log.append('fixture', { key: 'third', payload: {} })).offset).toBe(3);
    expect((await tallyman.deadLetters.list()).items.map(({ payload }) => payload)).toHaveLength(3);
    expect(await tallyman.schedules.list()).toMatchObject([{ name: 'yearly', enabled: true }]);
    const { rows } = await client.query(
      `select name from (select payload ->> 'name' as name from tallyman.jobs) j order by 1`,
    );
    expect(rows.map(({ name }) => name)).toEqual(['later', 'later in a lane']);
    const baskets = await client.query('select epc_hex from rfid.baskets order by tenant_id desc');
    expect(baskets.rows.map(({ epc_hex }) => epc_hex)).toEqual([basketTag(1), basketTag(2)]);
    expect(await tallyman.check()).toEqual([]);
  });

  test('its programs go on working before, during and after the upgrade', async () => {
    const { url, client } = await restored(release);
    // Every function file is applied anew while they run, as after a migration of each component.
    await client.query(`update tallyman.functions set checksum = ''`);
    const [old, other] = await Promise.all([
      OldProgram.connect(url, release, 'old'),
      OldProgram.connect(url, release, 'other'),
    ]);
    onTestFinished(async () => {
      await Promise.all([old.close(), other.close()]);
    });
    const enqueued = await old.enqueue(0);
    const done: string[] = [];
    // Held from before the upgrade until after it.
    const kept = [...(await other.claim()), ...(await other.claim())];
    expect(kept.map(({ name }) => name)).toContain('q1');

    let round = 0;
    let isUpgraded = false;
    const worked = Promise.withResolvers<void>();
    const working = async () => {
      for (let after = 0; after < 3; after += isUpgraded ? 1 : 0) {
        round += 1;
        enqueued.push(...(await old.enqueue(round)));
        const jobs = await old.claim();
        const retried = jobs.find(({ name }) => name.startsWith('alike'));
        if (retried) expect(await old.fail(retried)).toBe('QUEUED');
        const rest = jobs.filter((job) => job !== retried);
        if (rest.length > 0) await old.keep(rest);
        done.push(...(await old.settle(rest)));
        worked.resolve();
      }
    };
    const upgrading = async (): Promise<Tallyman> => {
      // One round at least is before it.
      await worked.promise;
      const opened = await Tallyman.open({
        ...{ databaseUrl: url, migrate: true, components: componentsOf(apps), logger: silentLogger },
      });
      onTestFinished(() => opened.close());
      isUpgraded = true;
      return opened;
    };
    const [tallyman] = await Promise.all([upgrading(), working()]);
    expect(round).toBeGreaterThan(3);

    await other.keep(kept);
    done.push(...(await other.settle(kept)));
    expect(await old.call('recover', { gone: [fixtureWorker], delays: '{}', keepMs: 1e9 })).toMatchObject([
      { worker: fixtureWorker, freed: 3 },
    ]);
    for (let jobs = await old.claim(); jobs.length > 0; jobs = await old.claim())
      done.push(...(await old.settle(jobs)));
    expect(done.filter((name) => enqueued.includes(name)).sort()).toEqual([...enqueued].sort());
    expect(done.filter((name) => name.startsWith('lane '))).toEqual(
      enqueued.filter((name) => name.startsWith('lane ')),
    );
    await old.call('leave', { worker: 'old' });
    for (const name of Object.keys(old.calls)) await old.prepare(name);
    expect(await tallyman.check()).toEqual([]);
  });
});
