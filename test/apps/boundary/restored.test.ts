/** Databases that are restored from a real backup: a copy of the files of a stopped server. The way back is by the command line. */
import { execFile } from 'node:child_process';
import { realpath, rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import type { EmbeddedPostgres } from '../../../src/engine/database/embedded/index.ts';
import { type Cli, cliOn, complaint, start } from '../../cli/support.ts';
import { privateServer } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { clientOf, factOf, type Place, pairedZones, type ServedZone, serveZone } from './zones.ts';

const run = promisify(execFile);

interface Restorable extends Place {
  readonly cli: Cli;
  /** Both while the server is stopped. */
  backUp(): Promise<void>;
  restore(): Promise<void>;
}

/** The same zone with a database server of its own. */
async function onOwnServer(place: Place): Promise<Restorable> {
  const server: EmbeddedPostgres = await privateServer();
  const env = { ...place.env, DATABASE_URL: server.url };
  const files = await realpath(server.dataDir);
  const copy = `${files}.backup`;
  onTestFinished(() => rm(copy, { recursive: true, force: true }));
  return {
    ...place,
    env,
    url: server.url,
    cli: cliOn(server.url, { env, cwd: place.folder }),
    rows: async <R>(sql: string, values?: unknown[]) => {
      const client = new pg.Client({ connectionString: server.url });
      await client.connect();
      return (await client.query(sql, values).finally(() => client.end())).rows as R[];
    },
    backUp: async () => {
      await server.stop();
      await run('cp', ['-a', files, copy]);
      await server.restart();
    },
    restore: async () => {
      await server.stop();
      await run('sh', ['-c', 'find "$1" -mindepth 1 -delete && cp -a "$2/." "$1"', 'sh', files, copy]);
      await server.restart();
    },
  };
}

const numbers = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** Facts m<from> to m<to> of a zone. */
async function append(
  place: Place,
  { port }: ServedZone,
  to: string,
  ids: readonly string[],
  object: unknown = 1,
) {
  const client = await clientOf(place, 'producer', port);
  for (let i = 0; i < ids.length; i += 500) {
    const facts = ids.slice(i, i + 500).map((id) => factOf(id, place.zone, to, object));
    const { results } = await client.appendFacts({ facts });
    expect(results.every(({ result }) => result.case === 'appended')).toBe(true);
  }
}

const frontier = async ({ rows }: Place, from: string): Promise<number> =>
  (
    await rows<{ offset: number }>(
      `select source_offset::float8 as "offset" from boundary.streams where buffer = 'forward' and from_zone = $1`,
      [from],
    )
  )[0]?.offset ?? 0;

const last = async ({ rows }: Place, stream: string): Promise<number> =>
  (
    await rows<{ last: number }>(
      'select (next_offset - 1)::float8 as last from tallyman.log_streams where name = $1',
      [stream],
    )
  )[0]?.last ?? 0;

/** What arrived: ids of facts, or of those that they stand for, and why offsets have none. */
async function arrived({ rows }: Place, stream: string) {
  const found = await rows<{ offset: number; payload: Record<string, never> }>(
    `select e."offset"::float8 as "offset", e.payload from tallyman.log_entries e
       join tallyman.log_streams s on s.id = e.stream where s.name = $1 order by 1`,
    [stream],
  );
  const records = found.map(
    ({ payload }) =>
      payload as {
        gap?: { reason: string };
        messageId?: string;
        standsFor?: { messageId: string };
      },
  );
  expect(found.map(({ offset }) => offset)).toEqual(numbers(1, found.length));
  return {
    ids: records.flatMap(({ gap, messageId, standsFor }) =>
      gap ? [] : [standsFor?.messageId ?? messageId ?? ''],
    ),
    gaps: records.flatMap(({ gap }) => (gap ? [gap.reason] : [])),
  };
}

const troubleOf = async (place: Place): Promise<string> =>
  (
    await place.rows<{ trouble: string | null }>(
      'select trouble from boundary.handoffs where trouble is not null',
    )
  )
    .map(({ trouble }) => trouble)
    .join('\n');

/** Waits until a hand-off has read everything that a zone sends, and had time to deliver it. */
async function attempted(place: Place, to: string): Promise<void> {
  const end = await last(place, `boundary/store/${place.zone}/${to}`);
  await until('a hand-off has tried', async () => {
    const found = await place.rows('select 1 from boundary.consumers where name = $1 and fetched >= $2', [
      `peer:${to}`,
      end,
    ]);
    return found.length === 1;
  });
  await sleep(1000);
}

const ids = (letter: string, from: number, to: number): string[] =>
  numbers(from, to).map((n) => `${letter}${n}`);

test('BND-4: a sender restored from a backup of 1,000 facts ago is refused, and comes back by zones new-epoch and accept-epoch: nothing lost, nothing twice', async () => {
  const zones = await pairedZones();
  const { enterprise } = zones;
  const plant = await onOwnServer(zones.plant);
  const far = cliOn(enterprise.url, { env: enterprise.env, cwd: enterprise.folder });
  await serveZone(enterprise);
  let node = await serveZone(plant);
  await append(plant, node, 'enterprise', ids('m', 1, 200));
  const crossed = async (offset: number) =>
    until(`${offset} facts have crossed`, async () => (await frontier(enterprise, 'plant-a')) === offset);
  await crossed(200);
  await until(
    'they are confirmed',
    async () => (await plant.rows('select 1 from boundary.consumers where cursor = 200')).length === 1,
  );
  await node.stop();
  await plant.backUp();
  node = await serveZone(plant);
  await append(plant, node, 'enterprise', ids('m', 201, 1200));
  await crossed(1200);
  await node.stop();
  await plant.restore();

  node = await serveZone(plant);
  // Before anything is appended: the next fact would get an offset that was issued before.
  await until('the plant knows', async () =>
    (await troubleOf(plant)).includes('zones new-epoch enterprise --after 1200'),
  );
  // New facts, some that producers send again, and one whose id was used for other content.
  await append(plant, node, 'enterprise', [...ids('n', 1, 50), ...ids('m', 1101, 1120)]);
  await append(plant, node, 'enterprise', ['m1150'], 'other');
  const status = await plant.cli('zones', 'status');
  expect(status.stdout).toContain('tallyman zones new-epoch enterprise --after 1200');
  await attempted(plant, 'enterprise');
  expect(await frontier(enterprise, 'plant-a')).toBe(1200);
  expect(complaint(await plant.cli('zones', 'new-epoch', 'enterprise'))).toMatch(
    /has plant-a → enterprise up to offset 1200; here it ends at 271.*append 71 facts again.*add --yes/s,
  );
  const killed = start('src/cli/main.ts', ['zones', 'new-epoch', 'enterprise', '--yes'], {
    env: plant.env,
    cwd: plant.folder,
  });
  const epochs = () => plant.rows<{ epoch: string }>('select epoch::text from boundary.epochs');
  await until('the epoch is started', async () => (await epochs()).length === 1);
  killed.child.kill('SIGKILL');
  await killed.ended;
  const started = await plant.cli('zones', 'new-epoch', 'enterprise', '--yes', '--json');
  expect(started).toMatchObject({ code: 0, stderr: '' });
  const { token, next_command, ...rest } = JSON.parse(started.stdout);
  expect(rest).toMatchObject({ after_offset: 1200, boundary_offset: 1200, appended_again: 71 });
  expect(next_command).toBe(`tallyman zones accept-epoch plant-a ${token}`);
  expect(await epochs()).toEqual([{ epoch: rest.epoch }]);
  const again = await plant.cli('zones', 'new-epoch', 'enterprise', '--yes', '--json');
  expect(JSON.parse(again.stdout)).toMatchObject({ token, appended_again: 71 });
  // Nothing crosses before the other zone agrees.
  await append(plant, node, 'enterprise', ids('p', 1, 5));
  await attempted(plant, 'enterprise');
  expect(await frontier(enterprise, 'plant-a')).toBe(1200);
  expect(complaint(await far('zones', 'accept-epoch', 'plant-a', 'x', '--yes'))).toContain('zones new-epoch');
  const elsewhere = token.replace(':1200:', ':1199:');
  expect(complaint(await far('zones', 'accept-epoch', 'plant-a', elsewhere, '--yes'))).toContain(
    'tallyman zones new-epoch enterprise --after 1200',
  );
  expect(complaint(await far('zones', 'accept-epoch', 'plant-a', token))).toContain('add --yes');
  expect(await far('zones', 'accept-epoch', 'plant-a', token, '--yes')).toMatchObject({
    code: 0,
    stderr: '',
  });
  expect((await far('zones', 'accept-epoch', 'plant-a', token, '--yes')).stdout).toContain(
    'was accepted before',
  );

  // Producers send again what the plant has lost.
  await append(plant, node, 'enterprise', ids('m', 201, 300));
  await append(plant, node, 'enterprise', ids('q', 1, 5));
  await crossed(1200 + 71 + 5 + 100 + 5);
  const { ids: here, gaps } = await arrived(enterprise, 'boundary/forward/plant-a/enterprise');
  expect(here).toEqual([...ids('m', 1, 1200), ...ids('n', 1, 50), ...ids('p', 1, 5), ...ids('q', 1, 5)]);
  expect(gaps).toEqual([
    ...Array(20).fill('already_delivered'),
    'conflicting_duplicate',
    ...Array(100).fill('already_delivered'),
  ]);
  const quarantined = await plant.cli('facts', 'quarantine', '--to', 'enterprise', '--json');
  expect(JSON.parse(quarantined.stdout).items).toMatchObject([{ reason: 'conflicting_duplicate' }]);
  await until('no trouble is left', async () => (await troubleOf(plant)) === '');
  expect((await plant.cli('zones', 'new-epoch', 'enterprise', '--yes')).stderr).toContain(
    'facts cross without a new epoch',
  );
  const reconciled = await plant.cli('zones', 'reconcile', '--to', 'enterprise');
  expect(reconciled.stdout).toContain('both zones agree');
  expect(reconciled).toMatchObject({ code: 0, stderr: '' });
  // A fact of the new epoch that somebody changes is named nevertheless.
  await enterprise.rows(
    `update tallyman.log_entries set payload = replace(payload::text, '"has_state"', '"had_state"')::json
      where "offset" = 1210`,
  );
  expect((await plant.cli('zones', 'reconcile', '--to', 'enterprise')).stdout).toContain(
    'Changed on the side of the receiver: fact 1210',
  );
}, 300_000);

test('BND-4, BND-8: a receiver restored from a backup gets the facts again; what was trimmed becomes gap records; what it had sent itself goes on behind', async () => {
  const zones = await pairedZones();
  const { plant } = zones;
  const enterprise = await onOwnServer(zones.enterprise);
  const near = cliOn(plant.url, { env: plant.env, cwd: plant.folder });
  const keeping = await serveZone(plant);
  let far = await serveZone(enterprise);
  await append(plant, keeping, 'enterprise', ids('m', 1, 100));
  await append(enterprise, far, 'plant-a', ids('b', 1, 10));
  const crossed = (place: Place, from: string, offset: number) =>
    until(`${from} has sent ${offset}`, async () => (await frontier(place, from)) === offset);
  await crossed(enterprise, 'plant-a', 100);
  await crossed(plant, 'enterprise', 10);
  await far.stop();
  await enterprise.backUp();
  far = await serveZone(enterprise);
  await append(plant, keeping, 'enterprise', ids('m', 101, 600));
  await append(enterprise, far, 'plant-a', ids('b', 11, 30));
  await crossed(enterprise, 'plant-a', 600);
  await crossed(plant, 'enterprise', 30);
  await far.stop();
  await enterprise.restore();
  far = await serveZone(enterprise);
  // The plant still has them: it sends them again by itself.
  await crossed(enterprise, 'plant-a', 600);
  expect((await arrived(enterprise, 'boundary/forward/plant-a/enterprise')).ids).toEqual(ids('m', 1, 600));

  // What the enterprise had sent is lost there, and its offsets would be issued again. It cannot ask: the plant connects.
  await append(enterprise, far, 'plant-a', ids('c', 1, 40));
  await until('the plant knows', async () =>
    (await troubleOf(plant)).includes('zones new-epoch plant-a --after 30'),
  );
  const blind = await enterprise.cli('zones', 'new-epoch', 'plant-a', '--yes');
  expect(complaint(blind)).toContain('has no address of zone "plant-a"');
  const started = await enterprise.cli('zones', 'new-epoch', 'plant-a', '--after', '30', '--yes', '--json');
  // Its log had gone beyond what the plant has: offsets 31 to 50 are taken by facts that cannot cross there.
  expect(JSON.parse(started.stdout)).toMatchObject({ after_offset: 30, boundary_offset: 50 });
  const { token } = JSON.parse(started.stdout);
  expect(await near('zones', 'accept-epoch', 'enterprise', token, '--yes')).toMatchObject({ code: 0 });
  await until('everything came', async () => (await frontier(plant, 'enterprise')) >= 90);
  const back = await arrived(plant, 'boundary/forward/enterprise/plant-a');
  expect(back.ids).toEqual([...ids('b', 1, 30), ...ids('c', 1, 40)]);
  expect(new Set(back.gaps)).toEqual(
    new Set(['dropped_by_source', ...back.gaps.filter((why) => why === 'already_delivered')]),
  );

  // The same restore once more, and now the plant has trimmed what it is asked for.
  await keeping.stop();
  await far.stop();
  await enterprise.restore();
  const trimming = await serveZone(plant, {
    TALLYMAN_BOUNDARY_RETENTION_KEEP_MS: '0',
    TALLYMAN_BOUNDARY_RETENTION_TRIM_MS: '1000',
  });
  await append(plant, trimming, 'enterprise', ids('m', 601, 640));
  await until(
    'they are trimmed',
    async () =>
      (await plant.rows('select 1 from tallyman.log_streams where first_offset = 601')).length === 1,
  );
  await serveZone(enterprise);
  await until('it is refused', async () => (await troubleOf(plant)).includes('too old'));
  expect((await near('zones', 'status')).stdout).toContain('tallyman zones new-epoch enterprise --after 100');
  const anew = await near('zones', 'new-epoch', 'enterprise', '--yes', '--json');
  expect(JSON.parse(anew.stdout)).toMatchObject({
    after_offset: 100,
    boundary_offset: 640,
    appended_again: 40,
  });
  expect(
    await enterprise.cli('zones', 'accept-epoch', 'plant-a', JSON.parse(anew.stdout).token, '--yes'),
  ).toMatchObject({
    code: 0,
  });
  await crossed(enterprise, 'plant-a', 680);
  const forth = await arrived(enterprise, 'boundary/forward/plant-a/enterprise');
  expect(forth.ids).toEqual([...ids('m', 1, 100), ...ids('m', 601, 640)]);
  expect(forth.gaps).toEqual(Array(540).fill('dropped_by_source'));
  expect(await last(plant, 'boundary/store/plant-a/enterprise')).toBe(680);
}, 300_000);
