import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { endWithUs, execute, freePort, stop, temporaryFolder } from './processes.ts';

export type Durability = 'everysec' | 'always';

/** A private Redis with an append-only file: synced each second, or before each answer. */
export interface RedisServer {
  readonly url: string;
  stop(): Promise<void>;
}

/** The version of the `redis-server` on this machine; undefined where there is none. */
export async function redisVersion(): Promise<string | undefined> {
  const output = await execute('redis-server', ['--version']).catch(() => undefined);
  return output?.match(/v=(\S+)/)?.[1];
}

export async function startRedis(durability: Durability): Promise<RedisServer> {
  const { path: home, remove: removeHome } = await temporaryFolder('tallyman-bench-redis-');
  const port = await freePort();
  const settings = {
    port: String(port),
    bind: '127.0.0.1',
    dir: home,
    appendonly: 'yes',
    appendfsync: durability,
    save: '',
    'maxmemory-policy': 'noeviction',
    loglevel: 'warning',
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const child = spawn('redis-server', args, { cwd: home, stdio: ['ignore', 'ignore', 'inherit'] });
  endWithUs(child);
  await accepting(port, () => child.exitCode !== null);
  return {
    url: `redis://127.0.0.1:${port}`,
    async stop() {
      await stop(child, 'SIGTERM');
      removeHome();
    },
  };
}

async function accepting(port: number, exited: () => boolean): Promise<void> {
  for (const deadline = Date.now() + 10_000; ; await sleep(20)) {
    const client = new Redis({ port, host: '127.0.0.1', lazyConnect: true, retryStrategy: () => null });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.ping();
      return;
    } catch (error) {
      if (exited()) throw new Error('redis-server ended at its start; its message is above.');
      if (Date.now() > deadline) throw error;
    } finally {
      client.disconnect();
    }
  }
}

/** Compacts the append-only file now, so that Redis does not start to in the middle of a measurement. */
export async function compact(url: string): Promise<void> {
  const client = new Redis(url);
  try {
    await client.bgrewriteaof();
    while (/aof_rewrite_(in_progress|scheduled):1/.test(await client.info('persistence'))) await sleep(20);
  } finally {
    client.disconnect();
  }
}
