/**
 * A real cluster of three servers under load from several processes, while servers are killed and cut off. Takes longer with
 * TEST_JETSTREAM_ROUNDS=10.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { JetStreamLog } from '../../../../src/apps/boundary/store/jetstream/log.ts';
import type { StoredEntry, StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { firstChain, nextChain } from '../../../../src/engine/log/entry.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { Bridge, canMakeNamespaces } from '../../../support/network-namespaces.ts';
import { clusterIn, type JetStreamServer, privateCluster } from '../../../support/services/jetstream.ts';
import { until } from '../../../support/until.ts';
import { storeDatabases } from './databases.ts';
import { numbers } from './facts.ts';

const rounds = Number(process.env.TEST_JETSTREAM_ROUNDS ?? 1);
const appenders = 2;
const callers = 8;

interface Jsz {
  readonly account_details?: readonly {
    readonly stream_detail?: readonly {
      readonly name: string;
      readonly cluster?: {
        readonly leader?: string;
        readonly replicas?: readonly { readonly current: boolean }[];
      };
    }[];
  }[];
}

async function scene(servers: readonly JetStreamServer[]) {
  onTestFinished(async () => {
    await Promise.all(servers.map(({ service }) => service[Symbol.asyncDispose]()));
  });
  await Promise.all(servers.map(({ service }) => service.start()));
  const { url, databases, close } = await storeDatabases();
  const tenantId = randomUUID();
  const options = {
    servers: servers.map((each) => each.url),
    monitorUrls: servers.map((each) => each.monitorUrl),
    replicas: 3,
    tenantId,
  };
  let log: JetStreamLog | undefined;
  await until('the cluster has a leader', async () => {
    log = await JetStreamLog.open(databases[0], { ...options, zone: 'plant-a', logger: silentLogger }).catch(
      () => undefined,
    );
    return log !== undefined;
  });
  const opened = log;
  if (!opened) throw new Error('no log');
  onTestFinished(async () => {
    await opened.stop();
    await close();
  });
  const stream: StreamId = { tenantId, buffer: 'store', from: 'plant-a', to: 'enterprise' };

  const acknowledged = new Map<string, number>();
  const complaints: string[] = [];
  const processes = numbers(1, appenders).map((n) => {
    const task = { ...options, database: url, name: `p${n}`, callers };
    const child = spawn(
      process.execPath,
      [`${import.meta.dirname}/appender-process.ts`, JSON.stringify(task)],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    onTestFinished(() => void child.kill('SIGKILL'));
    createInterface({ input: child.stdout }).on('line', (line) => {
      const [id = '', offset = ''] = line.split(' ');
      acknowledged.set(id, Number(offset));
    });
    createInterface({ input: child.stderr }).on('line', (line) => complaints.push(line));
    return child;
  });
  const reader = follow(opened, stream);

  /** More facts of every process are acknowledged. */
  const goesOn = async (count: number): Promise<void> => {
    for (const n of numbers(1, appenders)) {
      const of = () => [...acknowledged.keys()].filter((id) => id.startsWith(`p${n}-`)).length;
      const before = of();
      await until(
        `process ${n} goes on; it said: ${complaints.slice(-5).join(' / ')}`,
        () => of() >= before + count,
      );
    }
  };
  const detail = async () => {
    for (const { name, monitorUrl } of servers) {
      const answer = await fetch(`${monitorUrl}/jsz?streams=true&accounts=true`).catch(() => undefined);
      const jsz = (await answer?.json()) as Jsz | undefined;
      const streams = jsz?.account_details?.flatMap((each) => each.stream_detail ?? []) ?? [];
      // Only the leader knows how far the others are.
      const found = streams.find(({ cluster }) => cluster?.leader === name);
      if (found?.cluster) return found.cluster;
    }
    return undefined;
  };
  const leader = async (): Promise<number> => {
    let index = -1;
    await until('the stream has a leader', async () => {
      const name = (await detail())?.leader;
      index = servers.findIndex((each) => each.name === name);
      return index >= 0;
    });
    return index;
  };
  const allCurrent = (): Promise<void> =>
    until(
      'all replicas have caught up',
      async () => {
        const replicas = (await detail())?.replicas ?? [];
        return replicas.length === 2 && replicas.every(({ current }) => current);
      },
      60_000,
    );
  const end = async () => {
    await Promise.all(processes.map(stopped));
    return verify(opened, stream, acknowledged, await reader.stop(opened, stream));
  };
  return { log: opened, stream, goesOn, leader, allCurrent, end, complaints, acknowledged };
}

async function stopped(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  expect((await exited)[0]).toBe(0);
}

/** A reader that goes by offsets from the beginning, and notes what it has seen. */
function follow(log: JetStreamLog, stream: StreamId) {
  const seen: StoredEntry[] = [];
  const stopping = new AbortController();
  const running = (async () => {
    while (!stopping.signal.aborted)
      seen.push(...(await page(log, stream, seen.at(-1)?.offset ?? 0, stopping.signal)));
  })();
  return {
    stop: async (on: JetStreamLog, of: StreamId) => {
      stopping.abort();
      await running;
      for (let more = await page(on, of, seen.at(-1)?.offset ?? 0); more.length > 0; ) {
        seen.push(...more);
        more = await page(on, of, seen.at(-1)?.offset ?? 0);
      }
      return seen;
    },
  };
}

const page = (log: JetStreamLog, stream: StreamId, after: number, signal?: AbortSignal) =>
  log
    .read(stream, { after, limit: 500, maxBytes: 1024 * 1024, ...(signal && { waitMs: 500, signal }) })
    .catch((error: { code?: string }) => {
      if (error.code === 'UNAVAILABLE') return [];
      throw error;
    });

/** Nothing that was acknowledged is missing or elsewhere, nothing is twice, and the reader saw every offset in order. */
async function verify(
  log: JetStreamLog,
  stream: StreamId,
  acknowledged: ReadonlyMap<string, number>,
  seen: readonly StoredEntry[],
): Promise<number> {
  const { epoch = '', last = 0, chain: chainAtEnd } = (await log.state(stream)) ?? {};
  expect(seen.map(({ offset }) => offset)).toEqual(numbers(1, last));
  const offsets = new Map(seen.map(({ key, offset }) => [key, offset]));
  expect(offsets.size).toBe(seen.length);
  expect([...acknowledged].filter(([id, offset]) => offsets.get(id) !== offset)).toEqual([]);
  let chain = firstChain(epoch);
  for (const entry of seen) {
    chain = nextChain(chain, entry);
    if (entry.chain !== chain) throw new Error(`the chain hash at offset ${entry.offset} is wrong`);
  }
  expect(chain).toBe(chainAtEnd);
  return last;
}

test('BND-15: three servers, one of them killed and then the leader: nothing acknowledged is lost, nothing is twice, order holds', async () => {
  const servers = await privateCluster();
  const { goesOn, leader, allCurrent, end, acknowledged, complaints } = await scene(servers);
  await goesOn(100);
  for (const _ of numbers(1, rounds)) {
    const follower = servers[((await leader()) + 1) % 3]?.service;
    await follower?.kill();
    await goesOn(100);
    await follower?.start();
    await allCurrent();
    const leading = servers[await leader()]?.service;
    await leading?.kill();
    await goesOn(100);
    await leading?.start();
    await allCurrent();
  }
  await goesOn(50);
  const last = await end();
  console.info(`${last} facts, ${acknowledged.size} acknowledged, ${complaints.length} lines of errors`);
}, 600_000);

test.skipIf(!canMakeNamespaces)(
  'BND-15: the leader is cut off from the other servers, not from the processes: they go on with the majority, and nothing is lost or twice (needs root)',
  async () => {
    const bridge = await Bridge.open(3);
    onTestFinished(() => bridge.close());
    const servers = await clusterIn(bridge.namespaces);
    const { goesOn, leader, allCurrent, end, acknowledged, complaints } = await scene(servers);
    await goesOn(100);
    for (const _ of numbers(1, rounds)) {
      const index = await leader();
      await bridge.cut(index);
      await goesOn(100);
      await bridge.heal(index);
      await allCurrent();
    }
    await goesOn(50);
    const last = await end();
    console.info(`${last} facts, ${acknowledged.size} acknowledged, ${complaints.length} lines of errors`);
  },
  600_000,
);
