import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startEmbedded } from '../../../../src/engine/database/embedded/index.ts';
import type { Logger } from '../../../../src/engine/logger.ts';
import {
  databaseFolder,
  folder,
  hold,
  killed,
  onLinux,
  optionsIn,
  query,
  runs,
  start,
} from './support/fixture.ts';

const serverLog = (base: string): Promise<string> =>
  readFile(join(optionsIn(base).dataDir, 'server.log'), 'utf8');

test('a first start makes the database, stop() shuts it down cleanly, and the next start finds the rows', async () => {
  const base = await folder();
  const first = await start(optionsIn(base));
  await query(first.url, 'create table reads (tag text)');
  await query(first.url, "insert into reads values ('E280-1160')");
  await first.stop();
  await first.stop();
  await expect(query(first.url, 'select 1')).rejects.toThrow('ECONNREFUSED');

  const second = await start(optionsIn(base));
  expect(await query(second.url, 'select tag from reads')).toEqual([{ tag: 'E280-1160' }]);
  expect(second.url).toBe(first.url);
  expect(await serverLog(base)).not.toContain('not properly shut down');
});

test('the server is as safe as PostgreSQL is by default and reachable from this machine only', async () => {
  const server = await start({
    ...optionsIn(await folder()),
    settings: { work_mem: '7MB', listen_addresses: '*' },
  });
  const [settings] = await query(
    server.url,
    `select current_setting('fsync') as fsync, current_setting('synchronous_commit') as commit,
            current_setting('full_page_writes') as pages, current_setting('data_checksums') as checksums,
            current_setting('listen_addresses') as listens, current_setting('unix_socket_directories') as sockets,
            current_setting('work_mem') as work_mem, current_database() as database, current_user as "user"`,
  );
  expect(settings).toEqual({
    fsync: 'on',
    commit: 'on',
    pages: 'on',
    checksums: 'on',
    listens: '127.0.0.1',
    sockets: '',
    work_mem: '7MB',
    database: 'tallyman',
    user: 'tallyman',
  });
  const encodings = await query(
    server.url,
    "select pg_encoding_to_char(encoding) as encoding, datlocprovider as provider, datlocale as locale from pg_database where datname = 'tallyman'",
  );
  expect(encodings).toEqual([{ encoding: 'UTF8', provider: 'b', locale: 'C.UTF-8' }]);
  const methods = await query(server.url, 'select distinct auth_method from pg_hba_file_rules');
  expect(methods).toEqual([{ auth_method: 'scram-sha-256' }]);
  await expect(query(server.url.replace(/:[^:@]+@/, ':wrong@'), 'select 1')).rejects.toThrow('password');
});

test('the password is in one file that only its owner reads, and nowhere else', async () => {
  const base = await folder();
  const said: string[] = [];
  const note = (fields: object, message: string): number => said.push(message + JSON.stringify(fields));
  const logger: Logger = { debug: note, info: note, warn: note, error: note };
  const server = await start({ ...optionsIn(base), logger });
  await server.restart();
  const { dataDir } = optionsIn(base);
  const password = new URL(server.url).password;
  expect(password.length).toBeGreaterThanOrEqual(32);
  expect((await stat(join(dataDir, 'password'))).mode & 0o777).toBe(0o600);

  const holders: string[] = [];
  for (const entry of await readdir(base, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && (await readFile(path, 'latin1').catch(() => '')).includes(password))
      holders.push(path);
  }
  expect(holders).toEqual([join(dataDir, 'password')]);
  expect(said.length).toBeGreaterThan(0);
  expect(said.join('\n')).not.toContain(password);
  if (onLinux) {
    expect(await readFile(`/proc/${server.pid}/cmdline`, 'latin1')).not.toContain(password);
  }
});

test.runIf(onLinux)('Ctrl-C in the terminal and our own secrets do not reach the server', async () => {
  process.env.TALLYMAN_TEST_SECRET = 'pepper';
  onTestFinished(() => void delete process.env.TALLYMAN_TEST_SECRET);
  const server = await start(optionsIn(await databaseFolder()));
  const groupOf = async (pid: number | 'self'): Promise<string | undefined> =>
    (await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/.*\) /, '').split(' ')[2];
  expect(await groupOf(server.pid)).toBe(String(server.pid));
  expect(await groupOf('self')).not.toBe(String(server.pid));
  expect(await readFile(`/proc/${server.pid}/environ`, 'latin1')).not.toContain('pepper');
});

describe('when it does not start', () => {
  test('the error carries the last lines of the log, and the folder is free again', async () => {
    const base = await databaseFolder();
    await expect(
      startEmbedded({ ...optionsIn(base), settings: { shared_buffers: 'plenty' } }),
    ).rejects.toMatchObject({
      code: 'EMBEDDED_START_FAILED',
      message: expect.stringMatching(/server\.log:\n.*invalid value for parameter "shared_buffers"/s),
    });
    await start(optionsIn(base));
  });

  test('a lost password file is named; the data is left alone', async () => {
    const base = await databaseFolder();
    const server = await start(optionsIn(base));
    await server.stop();
    const path = join(optionsIn(base).dataDir, 'password');
    const content = await readFile(path, 'utf8');
    await writeFile(path, '');
    await expect(startEmbedded(optionsIn(base))).rejects.toMatchObject({
      code: 'EMBEDDED_PASSWORD_MISSING',
      message: expect.stringContaining(path),
    });
    await writeFile(path, 'another-password-of-sufficient-length');
    await expect(startEmbedded(optionsIn(base))).rejects.toMatchObject({ code: 'EMBEDDED_PASSWORD_WRONG' });
    await writeFile(path, content);
    await start(optionsIn(base));
  });

  test('a setting cannot smuggle in another one', async () => {
    await expect(
      startEmbedded({ ...optionsIn(await databaseFolder()), settings: { 'work_mem=1MB -c fsync': 'off' } }),
    ).rejects.toMatchObject({ code: 'EMBEDDED_BAD_SETTING' });
  });
});

describe('the port', () => {
  const occupy = async (port: number): Promise<void> => {
    const other = createServer().listen(port, '127.0.0.1');
    onTestFinished(() => void other.close());
    await new Promise((resolve) => other.once('listening', resolve));
  };

  test('is another one when the remembered one is taken meanwhile', async () => {
    const base = await databaseFolder();
    const first = await start(optionsIn(base));
    await first.stop();
    await occupy(first.port);
    const second = await start(optionsIn(base));
    expect(second.port).not.toBe(first.port);
    expect(await query(second.url, 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  test('asked for and taken is refused by number', async () => {
    const base = await databaseFolder();
    const first = await start(optionsIn(base));
    await first.stop();
    await occupy(first.port);
    await expect(startEmbedded({ ...optionsIn(base), port: first.port })).rejects.toMatchObject({
      code: 'EMBEDDED_PORT_IN_USE',
      message: expect.stringContaining(String(first.port)),
    });
  });
});

describe('fault tests can', () => {
  test('kill the server and start it again on its port, with everything committed still there', async () => {
    const server = await start(optionsIn(await databaseFolder()));
    const { port, pid } = server;
    await query(server.url, 'create table kept as select generate_series(1, 1000) as n');
    server.kill('SIGKILL');
    await server.restart();
    expect(server.port).toBe(port);
    expect(server.pid).not.toBe(pid);
    expect(await query(server.url, 'select count(*)::int as n from kept')).toEqual([{ n: 1000 }]);
    await server.stop();
    await server.restart();
    expect(await query(server.url, 'select count(*)::int as n from kept')).toEqual([{ n: 1000 }]);
  });

  test('stop a server that they have frozen, and it still shuts down cleanly', async () => {
    const base = await databaseFolder();
    const server = await start(optionsIn(base));
    server.kill('SIGSTOP');
    await server.stop();
    await expect(query(server.url, 'select 1')).rejects.toThrow('ECONNREFUSED');
    expect(await serverLog(base)).toMatch(/database system is shut down\n$/);
  });

  test('see in the log that the server has ended when nobody asked it to', async () => {
    const errors: string[] = [];
    const logger: Logger = { debug() {}, info() {}, warn() {}, error: (_, message) => errors.push(message) };
    const server = await start({ ...optionsIn(await databaseFolder()), logger });
    process.kill(server.pid, 'SIGQUIT');
    await expect.poll(() => errors).toHaveLength(1);
    expect(errors[0]).toContain('ended by itself');
  });
});

test.runIf(onLinux)('a process that is asked to end leaves no server behind', async () => {
  const base = await databaseFolder();
  const holder = hold(optionsIn(base));
  const { pid } = await holder.answer;
  await holder.finish();
  expect(runs(pid)).toBe(false);
  // Not so when it is killed: the other half of what the next file relies on.
  const second = hold(optionsIn(base));
  const left = await second.answer;
  await killed(second);
  expect(runs(left.pid)).toBe(true);
});
