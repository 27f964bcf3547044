/**
 * Two zones, each a network namespace with a PostgreSQL server, a node and a producer, and a line between them that is cut and
 * disturbed while nodes and servers are killed. TEST_ZONES_SECONDS=300 for a longer run, TEST_SEED for the same trouble again.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { pairZones } from '../../../src/apps/boundary/pairing/pair.ts';
import { messageOf } from '../../../src/engine/errors.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { freePorts } from '../../support/services/service.ts';
import { until } from '../../support/until.ts';
import type { Content, ReceiptRange } from './contents-process.ts';
import { openLine } from './line.ts';
import { makeTrouble } from './trouble.ts';
import { Zone } from './zone.ts';

const seconds = Number(process.env.TEST_ZONES_SECONDS ?? 15);

async function scene() {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-zones-'));
  await chmod(folder, 0o711);
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const line = await openLine();
  onTestFinished(() => line.close());
  const [port = 0] = await freePorts(1);
  const paired = await pairZones({
    first: 'plant-a',
    second: 'enterprise',
    folder: join(folder, 'pair'),
    trustDomain: 'example',
    url: line.url,
    port,
    days: 2,
  });
  const [first, second] = paired.zones;
  const plant = new Zone({
    paired: first,
    other: 'enterprise',
    folder: await mkdtemp(join(folder, 'plant-')),
    inNetwork: line.inPlant,
    listen: { host: '127.0.0.1', port },
  });
  const enterprise = new Zone({
    paired: second,
    other: 'plant-a',
    folder: await mkdtemp(join(folder, 'enterprise-')),
    inNetwork: line.inEnterprise,
    listen: line.listen,
  });
  onTestFinished(async () => {
    await Promise.all([plant.stop(), enterprise.stop()]);
  });
  return { line, plant, enterprise };
}

interface Holding {
  readonly entries: readonly Content[];
  readonly receipts: readonly ReceiptRange[];
}

const ofBuffer = (all: readonly (Content | ReceiptRange)[], buffer: string): Holding => {
  const own = all.filter((each) => each.buffer === buffer);
  return {
    entries: own.filter((each): each is Content => 'id' in each),
    receipts: own.filter((each): each is ReceiptRange => 'receipt' in each),
  };
};

/** Everything that was answered is there, once, in order, as it was appended; the receipts leave nothing out, on either side. */
function requireAllCrossed(source: Zone, sent: Holding, received: Holding): void {
  const { entries } = received;
  expect(entries.filter(({ wrong }) => wrong !== undefined).slice(0, 5)).toEqual([]);
  expect(entries.every(({ offset }, i) => offset === i + 1)).toBe(true);
  expect(new Set(entries.map(({ id }) => id)).size).toBe(entries.length);
  expect(entries.length).toBe(sent.entries.length);
  expect(entries.filter(({ hash }, i) => hash !== sent.entries[i]?.hash).slice(0, 5)).toEqual([]);
  const missing = [...source.answered].filter(([id, offset]) => entries[offset - 1]?.id !== id);
  expect(missing.slice(0, 5)).toEqual([]);
  expect(source.answered.size).toBeGreaterThan(0);
  for (const { receipts } of [received, sent]) {
    let covered = 0;
    for (const { receipt } of receipts) {
      expect(receipt[0]).toBe(covered + 1);
      covered = receipt[1];
    }
    expect(covered).toBe(entries.length);
  }
  const contentOf = ({ receipts }: Holding): string[] =>
    receipts.map(({ receipt: [from, to], hash }) => `${from}-${to} ${hash}`);
  expect(contentOf(sent)).toEqual(contentOf(received));
}

interface Reconciled {
  readonly in_agreement: boolean;
  readonly equal: number;
  readonly gaps: number;
  readonly not_crossed: unknown;
  readonly crossed: readonly { readonly from_offset: number; readonly to_offset: number }[];
  readonly tampered: readonly { readonly side: string; readonly offset: number }[];
}

async function reconciled(
  zone: Zone,
  direction: readonly string[],
): Promise<Reconciled & { readonly code: number | null }> {
  const { code, stdout, stderr } = await zone.run('zones', 'reconcile', ...direction, '--json');
  if (stdout === '') throw new Error(stderr);
  return { ...(JSON.parse(stdout) as Reconciled), code };
}

interface Status {
  readonly from_zone: string;
  readonly frontier: number;
  readonly last_offset: number;
}

/** A hand-off waits up to 30 s before it tries again, and a line that is dead is given up after 20 s. */
const crossingMs = (135 + seconds) * 1000;

/**
 * Each zone has heard that the other one has all of its facts. If it does not come to that, the error has what it has said last.
 */
async function crossedBothWays(both: readonly Zone[]): Promise<void> {
  const seen = new Map<string, string>();
  const hasCrossed = async (zone: Zone): Promise<boolean> => {
    const { stdout, stderr } = await zone.run('zones', 'status', '--json');
    seen.set(zone.name, stdout + stderr);
    if (stdout === '') return false;
    const { items } = JSON.parse(stdout) as { items: readonly Status[] };
    const stream = items.find(({ from_zone }) => from_zone === zone.name);
    return (
      stream !== undefined &&
      stream.frontier >= Math.max(...zone.answered.values()) &&
      stream.frontier === stream.last_offset
    );
  };
  const haveCrossed = async (): Promise<boolean> => {
    for (const zone of both) if (!(await hasCrossed(zone))) return false;
    return true;
  };
  await until('everything has crossed', haveCrossed, crossingMs).catch((error: unknown) => {
    throw new Error([messageOf(error), ...seen.values()].join('\n'));
  });
}

test('BND-8, BND-9, BND-10: a line that is cut, slow and loses packets, nodes and databases killed: every fact that was answered is in the other zone once, in order, byte for byte, with its object', {
  timeout: (seconds * 3 + 475) * 1000,
}, async () => {
  const { seed } = seededRandom();
  const { line, plant, enterprise } = await scene();
  const both = [plant, enterprise] as const;
  await Promise.all(both.map((zone) => zone.startDatabase()));
  for (const zone of both) zone.serve();
  await Promise.all(both.map((zone) => zone.serving()));
  plant.produce({ callers: 6, restMs: 4 });
  enterprise.produce({ callers: 3, restMs: 8 });
  for (const zone of both) await until('facts are appended', () => zone.answered.size > 20);

  const counts = await makeTrouble({ line, zones: both }, seconds, seed);
  await Promise.all(both.map((zone) => zone.endProducer()));
  await crossedBothWays(both);

  const [ofPlant, ofEnterprise] = await Promise.all(both.map((zone) => zone.contents()));
  if (!ofPlant || !ofEnterprise) throw new Error('unreachable');
  const [out, arrived] = [ofBuffer(ofPlant, 'store'), ofBuffer(ofEnterprise, 'forward')];
  const [back, came] = [ofBuffer(ofEnterprise, 'store'), ofBuffer(ofPlant, 'forward')];
  const objects = [...arrived.entries, ...came.entries].filter(({ hasObject }) => hasObject).length;
  console.info(
    `seed ${seed}, over ${line.kind}: ${seconds} s of trouble, ${out.entries.length} facts out and ${back.entries.length} back, ` +
      `${objects} with objects; ${counts.kills} nodes killed, ${counts.crashes} database crashes, ${counts.cuts} cuts, ` +
      `${counts.disturbances} times slow and lossy${line.lost === undefined ? '' : ` (${line.lost} packets lost)`}, ` +
      `${arrived.receipts.length + came.receipts.length} receipts`,
  );
  requireAllCrossed(plant, out, arrived);
  requireAllCrossed(enterprise, back, came);
  for (const zone of both) expect(zone.complaints).toEqual([]);

  for (const [direction, { entries }] of [
    [['--to', 'enterprise'], arrived],
    [['--from', 'enterprise'], came],
  ] as const) {
    const found = await reconciled(plant, direction);
    expect(found).toMatchObject({
      code: 0,
      in_agreement: true,
      equal: entries.length,
      gaps: 0,
      not_crossed: null,
    });
    expect(found.crossed[0]?.from_offset).toBe(1);
    expect(found.crossed.at(-1)?.to_offset).toBe(entries.length);
  }
  // Somebody changes a fact in the enterprise's database.
  const target = 1 + Math.floor(arrived.entries.length / 2);
  const changed = await enterprise.sql(
    `update tallyman.log_entries set payload = replace(payload::text, '"has_state"', '"had_state"')::json
      where "offset" = ${target} and stream = (select id from tallyman.log_streams where name = 'boundary/forward/plant-a/enterprise')`,
  );
  expect(changed).toBe(1);
  expect(await reconciled(plant, ['--to', 'enterprise'])).toMatchObject({
    code: 1,
    in_agreement: false,
    tampered: [{ side: 'receiver', offset: target }],
  });
});
