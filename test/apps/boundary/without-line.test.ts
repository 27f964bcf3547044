/** What a node does by its configuration alone: files through a data diode, dropping the oldest facts, the pace of a backlog. */
import { copyFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type Cli, cliOn, complaint, type Started, start } from '../../cli/support.ts';
import { until } from '../../support/until.ts';
import { clientOf, factOf, type Place, pairedZones, serveZone } from './zones.ts';

interface Zone {
  readonly cli: Cli;
  /** A process of its own. */
  serve(more?: Readonly<Record<string, string>>): Promise<Started>;
}

function zoneWith({ url, env, folder }: Place, peers: object): Zone {
  const configured = { ...env, TALLYMAN_BOUNDARY_PEERS: JSON.stringify(peers), TALLYMAN_BOUNDARY_PORT: '0' };
  return {
    cli: cliOn(url, { env: configured, cwd: folder }),
    serve: async (more = {}) => {
      const started = start('src/cli/main.ts', ['serve', '--only', 'boundary', '--migrate'], {
        env: { ...configured, ...more },
        cwd: folder,
      });
      await started.said(/"boundary +zone [a-z-]+ on https/);
      return started;
    },
  };
}

const keysOf = (place: Place, of: string): unknown =>
  (place.config.boundary.peers as Record<string, { receiptKeys: unknown }>)[of]?.receiptKeys;

const frontier = async ({ rows }: Place): Promise<number> =>
  (
    await rows<{ offset: number }>(
      `select source_offset::float8 as "offset" from boundary.streams where buffer = 'forward' and from_zone = 'plant-a'`,
    )
  )[0]?.offset ?? 0;

const payloads = async ({ rows }: Place) =>
  (
    await rows<{ payload: { gap?: { reason: string }; messageId?: string } }>(
      `select e.payload from tallyman.log_entries e join tallyman.log_streams s on s.id = e.stream
        where s.name = 'boundary/forward/plant-a/enterprise' order by e."offset"`,
    )
  ).map(({ payload }) => payload);

const ids = (from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, i) => `m${from + i}`);

const stop = async ({ child, ended }: Started): Promise<void> => {
  child.kill('SIGTERM');
  expect((await ended).code).toBe(0);
};

test('BND-11: two nodes in one-way mode by configuration: a file that is lost shows, and is sent again by hand and on a schedule', async () => {
  const { plant, enterprise } = await pairedZones();
  const [outbox, inbox] = [join(plant.folder, 'outbox'), join(enterprise.folder, 'inbox')];
  const leaving = { mode: 'one-way', outbox };
  const source = zoneWith(plant, { enterprise: leaving });
  const target = zoneWith(enterprise, {
    'plant-a': { mode: 'one-way', inbox, receiptKeys: keysOf(enterprise, 'plant-a') },
  });
  const sending = await source.serve();
  const receiving = await target.serve();
  const files = async (): Promise<string[]> =>
    (await readdir(outbox)).filter((file) => file.endsWith('.tar'));
  /** The diode: files go over or are lost, and none comes back. */
  const carry = async (isLost = false): Promise<void> => {
    for (const file of await files()) {
      if (!isLost) await copyFile(join(outbox, file), join(inbox, file));
      await rm(join(outbox, file));
    }
  };
  const append = async (wanted: readonly string[]): Promise<void> => {
    const lines = join(plant.folder, 'facts.jsonl');
    const told = wanted.map((message_id) => ({
      message_id,
      subject: `order:${message_id}`,
      predicate: 'is',
      object: 1,
    }));
    await writeFile(lines, told.map((fact) => JSON.stringify(fact)).join('\n'));
    expect((await source.cli('facts', 'append', '--lines', lines)).code).toBe(0);
  };
  /** All of them are in files. */
  const left = (count: number) =>
    until(
      `${count} facts left`,
      async () =>
        (await plant.rows('select 1 from boundary.consumers where cursor = $1', [count])).length === 1,
    );
  await append(ids(1, 10));
  await left(10);
  await carry();
  await until('the first file was taken', async () => (await frontier(enterprise)) === 10);
  await append(ids(11, 20));
  await left(20);
  await carry(true);
  await append(ids(21, 30));
  await left(30);
  await carry();
  await receiving.said('facts do not cross');
  const { stdout } = await target.cli('zones', 'status');
  expect(stdout).toMatch(/one-way +refused/);
  const command = 'facts send-again 11 20 --to enterprise';
  expect(stdout).toContain(`tallyman ${command}`);
  expect(await frontier(enterprise)).toBe(10);
  expect((await source.cli(...command.split(' '))).stdout).toContain('offsets 11 to 20');
  await carry();
  await until('everything has come', async () => (await frontier(enterprise)) === 30);
  await receiving.said('facts cross again');
  expect(complaint(await target.cli('facts', 'send-again', '1', '2'))).toContain('outbox is not set');

  // Now by itself.
  await stop(sending);
  const resend = { everyMs: 1000, windowMs: 3_600_000 };
  const again = zoneWith(plant, { enterprise: { ...leaving, resend } });
  const resending = await again.serve();
  await append(ids(31, 35));
  await left(35);
  await carry(true);
  await until('it was written again', async () => (await files()).length > 0);
  await carry();
  await until('it has come', async () => (await frontier(enterprise)) === 35);
  expect((await payloads(enterprise)).map(({ messageId }) => messageId)).toEqual(ids(1, 35));
  await stop(resending);
  await stop(receiving);
}, 300_000);

test('BND-9: by configuration a full stream drops its oldest facts: counted, told, and gap records in the other zone', async () => {
  const { plant, enterprise } = await pairedZones();
  const more = {
    TALLYMAN_PORT: '0',
    TALLYMAN_BOUNDARY_LIMITS_ON_FULL: 'drop-oldest',
    TALLYMAN_BOUNDARY_LIMITS_MAX_BYTES: '20000',
  };
  const { port, url } = await serveZone(plant, more, ['boundary', 'api']);
  const producer = await clientOf(plant, 'producer', port);
  const all = ids(1, 400);
  for (let i = 0; i < all.length; i += 20) {
    const facts = all.slice(i, i + 20).map((id) => factOf(id, 'plant-a', 'enterprise'));
    const { results } = await producer.appendFacts({ facts });
    expect(results.every(({ result }) => result.case === 'appended')).toBe(true);
  }
  const cli = cliOn(plant.url, { env: { ...plant.env, ...more }, cwd: plant.folder });
  let counted = 0;
  // They are dropped in the background, down to 70 %, and counted when that is done.
  await until('they are dropped and counted', async () => {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    counted = Number(/dropped_facts_total\{from="plant-a",to="enterprise"\} (\d+)/.exec(metrics)?.[1]);
    const [status] = JSON.parse((await cli('zones', 'status', '--json')).stdout).items;
    expect(status).toMatchObject({ on_full: 'drop-oldest', full_since: null });
    return status.dropped === counted && status.bytes < 16_000;
  });
  expect(counted).toBeGreaterThan(100);
  await until('there are events', async () => {
    const events = await plant.rows<{ payload: { count: number } }>(
      `select payload from tallyman_events.events where event_type = 'boundary.stream.dropped'`,
    );
    return events.reduce((sum, { payload }) => sum + payload.count, 0) === counted;
  });
  await serveZone(enterprise);
  await until('the rest has crossed', async () => (await frontier(enterprise)) === 400);
  expect((await payloads(enterprise)).map(({ gap, messageId }) => gap?.reason ?? messageId)).toEqual(
    all.map((id, i) => (i < counted ? 'dropped_by_source' : id)),
  );
}, 120_000);

test('BND-9: by configuration a backlog crosses in steps of what a second may have', async () => {
  const { plant, enterprise } = await pairedZones();
  const more = { TALLYMAN_BOUNDARY_PACE_FACTS_PER_SECOND: '20' };
  const { port } = await serveZone(plant, more);
  const producer = await clientOf(plant, 'producer', port);
  await producer.appendFacts({ facts: ids(1, 100).map((id) => factOf(id, 'plant-a', 'enterprise')) });
  await serveZone(enterprise);
  await until('all has crossed', async () => (await frontier(enterprise)) === 100);
  const receipts = await enterprise.rows<{ facts: number; at: number }>(
    'select (to_offset - from_offset + 1)::int as facts, received_at::float8 as at from boundary.receipts order by to_offset',
  );
  expect(receipts.map(({ facts }) => facts)).toEqual([20, 20, 20, 20, 20]);
  // The first goes at once, the last has no backlog behind it: three wait for a second each. Half of that, should the first be slow.
  const [first, last] = [receipts[0]?.at ?? 0, receipts.at(-1)?.at ?? 0];
  expect(last - first).toBeGreaterThan(1500);
  const cli = cliOn(plant.url, { env: { ...plant.env, ...more }, cwd: plant.folder });
  expect((await cli('zones', 'status')).stdout).toContain('a backlog crosses with up to 20 facts per second');
}, 120_000);
