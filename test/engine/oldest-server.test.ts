import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { oldestServer } from '../../src/engine/database/database.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { until } from '../support/engine.ts';

// The embedded server is the newest we support; this is the oldest, as Debian 12 has it.
const bin = `/usr/lib/postgresql/${oldestServer}/bin`;
const missing = !existsSync(bin);

/** PostgreSQL refuses to run as root. */
const account = () => {
  if (process.getuid?.() !== 0) return {};
  const [uid, gid] = execFileSync('id', ['postgres'], { encoding: 'utf8' }).match(/\d+/g) ?? [];
  return { uid: Number(uid), gid: Number(gid) };
};

let folder = '';
let url = '';
let stop = async () => {};

beforeAll(async () => {
  if (missing) return;
  const as = account();
  folder = mkdtempSync(join(tmpdir(), 'tallyman-oldest-'));
  if (as.uid !== undefined) chownSync(folder, as.uid, as.gid);
  const data = join(folder, 'data');
  execFileSync(join(bin, 'initdb'), ['-D', data, '-A', 'trust', '-U', 'tallyman', '-N'], {
    ...as,
    cwd: folder,
  });
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as { port: number };
  probe.close();
  const server = spawn(
    join(bin, 'postgres'),
    ['-D', data, '-p', String(port), '-h', '127.0.0.1', '-c', 'unix_socket_directories='],
    { ...as, cwd: folder, stdio: 'ignore' },
  );
  const ended = once(server, 'exit');
  stop = async () => {
    server.kill('SIGINT');
    await ended;
  };
  url = `postgres://tallyman@127.0.0.1:${port}/postgres`;
});

afterAll(async () => {
  await stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

test.skipIf(missing)(
  `PostgreSQL ${oldestServer} does all that the newest does (skipped where it is not installed)`,
  async () => {
    const open = () => Tallyman.open({ databaseUrl: url, migrate: true });
    let tallyman: Tallyman | undefined;
    await until('the server is up', async () => {
      tallyman = await open().catch(() => undefined);
      return tallyman !== undefined;
    });
    if (!tallyman) throw new Error('not open');
    const { rows } = await tallyman.database.query<{ v: string }>(
      `select current_setting('server_version') as v`,
    );
    expect(rows[0]?.v).toMatch(new RegExp(`^${oldestServer}\\.`));

    const order = new Map<string, number[]>();
    const kind = defineKind<{ n: number }>({
      name: 'k',
      retry: { maxAttempts: 2, backoff: () => 1 },
      handler: async ({ n }, ctx) => {
        if (n === 13) throw new Error('unlucky');
        if (ctx.lane) order.set(ctx.lane, [...(order.get(ctx.lane) ?? []), n]);
        if (n % 2) await ctx.commit((tx) => tx.query('select 1'));
      },
    });
    const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 100 });
    await worker.start();
    await tallyman.enqueueMany(
      kind,
      Array.from({ length: 300 }, (_, n) => ({ payload: { n }, ...(n % 3 && { lane: `l${n % 3}` }) })),
    );
    await tallyman.enqueue(kind, { n: 0 }, { dedupeKey: 'once', delayMs: 50 });
    expect((await tallyman.enqueue(kind, { n: 0 }, { dedupeKey: 'once' })).existing).toBe(true);
    await tallyman.log.append('s', { key: 'a', payload: 1 });
    await tallyman.database.query(`select tallyman.enqueue('k', '{"n": 2}')`);
    const { jobs } = tallyman;
    await until('all are done', async () => (await jobs.counts()).SUCCEEDED === 301);
    expect(await jobs.counts()).toMatchObject({ DEAD_LETTER: 1, QUEUED: 0, RUNNING: 0 });
    for (const ns of order.values()) expect(ns).toEqual([...ns].sort((a, b) => a - b));
    await tallyman.close();
  },
);
