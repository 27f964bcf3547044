import { execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, chown, copyFile, open, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { spawnAs } from '../../../../src/engine/database/embedded/account.ts';
import { openArea } from '../../../../src/engine/database/embedded/area.ts';
import { platformPackage, usableBinaries } from '../../../../src/engine/database/embedded/binaries.ts';
import { startEmbedded } from '../../../../src/engine/database/embedded/index.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import {
  asRoot,
  databaseFolder,
  hold,
  killed,
  killQuietly,
  onLinux,
  optionsIn,
  processesOf,
  query,
  runs,
  start,
} from './support/fixture.ts';

const fileIn = (base: string): string => join(optionsIn(base).dataDir, 'data/postmaster.pid');

/** As the server would have left it: under its account. */
async function leave(base: string, content: string | Buffer): Promise<void> {
  const owner = await stat(dirname(fileIn(base)));
  await writeFile(fileIn(base), content);
  if (asRoot) await chown(fileIn(base), owner.uid, owner.gid);
}

async function withRows(base: string): Promise<void> {
  const server = await startEmbedded(optionsIn(base));
  await query(server.url, 'create table reads as select generate_series(1, 1000) as n');
  await server.stop();
}

async function startsWithItsRows(base: string): Promise<void> {
  const server = await startEmbedded(optionsIn(base));
  expect(await query(server.url, 'select count(*)::int as n from reads')).toEqual([{ n: 1000 }]);
  await server.stop();
}

/** Without a pause: between the creation of the file and its content lie some microseconds. Hits once in ten or twenty. */
function killAsItWritesItsFile(base: string, servers: () => number[]): void {
  let pid: number | undefined;
  const deadline = Date.now() + 5_000;
  while (pid === undefined && Date.now() < deadline) [pid] = servers();
  while (!existsSync(fileIn(base)) && Date.now() < deadline);
  if (pid) killQuietly(pid);
}

describe('a postmaster.pid that a killed server or machine left half-written', () => {
  test.each([
    { what: 'empty', content: '' },
    { what: 'a minus sign alone', content: '-' },
    { what: 'an empty first line', content: '\n/somewhere\n' },
    { what: 'zeros, as some file systems leave after a power cut', content: Buffer.alloc(97) },
    { what: 'garbage', content: Buffer.from('\x7fELF\x02 not a lock file \xff\xfe') },
    { what: 'a number no process has', content: '99999999999999999999\n' },
  ])('does not stop the next start: $what', async ({ content }) => {
    const base = await databaseFolder();
    await withRows(base);
    await leave(base, content);
    await startsWithItsRows(base);
  });

  test('does not stop the next start, wherever it was cut off', async () => {
    const base = await databaseFolder();
    await withRows(base);
    const server = await startEmbedded(optionsIn(base));
    const whole = await readFile(fileIn(base), 'utf8');
    await server.stop();
    const firstLine = whole.indexOf('\n') + 1;
    const lineEnds = [...whole.matchAll(/\n/g)].map(({ index }) => index);
    const lengths = [...Array(firstLine + 1).keys(), ...lineEnds, ...lineEnds.map((at) => at - 1)];
    for (const length of new Set(lengths)) {
      await leave(base, whole.slice(0, length));
      await startsWithItsRows(base);
    }
  });

  test('does no harm to a process whose pid the rest of the number looks like', async () => {
    const base = await databaseFolder();
    await withRows(base);
    const owner = await stat(dirname(fileIn(base)));
    const bystander = spawn('sleep', ['60'], asRoot ? { uid: owner.uid, gid: owner.gid } : {});
    onTestFinished(() => killQuietly(bystander.pid ?? 0));
    await leave(base, String(bystander.pid));
    await startsWithItsRows(base);
    expect(bystander.exitCode ?? bystander.signalCode).toBeNull();
  });
});

describe.runIf(onLinux)('a damaged postmaster.pid', () => {
  test.each(['', '1', 'garbage\n'])('does not hide a server that still runs: %j', async (content) => {
    const base = await databaseFolder();
    await withRows(base);
    const holder = hold(optionsIn(base));
    const orphan = await holder.answer;
    await killed(holder);
    await leave(base, content);
    expect(runs(orphan.pid)).toBe(true);
    await startsWithItsRows(base);
    expect(runs(orphan.pid)).toBe(false);
  });

  test('does not let a new server in while a backend of the killed one still uses the data', async () => {
    const base = await databaseFolder();
    const server = await start(optionsIn(base));
    const client = new pg.Client({ connectionString: server.url });
    client.on('error', () => {});
    await client.connect();
    const { rows } = await client.query('select pg_backend_pid() as pid');
    process.kill(rows[0].pid, 'SIGSTOP');
    onTestFinished(() => killQuietly(rows[0].pid));
    server.kill('SIGKILL');
    await expect.poll(() => runs(server.pid)).toBe(false);
    await leave(base, '');
    let restarted = false;
    const restart = server.restart().then(() => {
      restarted = true;
    });
    await sleep(1_500);
    expect(restarted).toBe(false);
    process.kill(rows[0].pid, 'SIGCONT');
    await restart;
    expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }]);
  });
});

describe.runIf(onLinux)('a server whose parent was killed in the middle of the start', () => {
  test.each([
    { file: 'none', content: undefined },
    { file: 'empty', content: '' },
  ])('is found before it has written its file, and stopped ($file)', async ({ content }) => {
    const base = await databaseFolder();
    await withRows(base);
    const { dataDir, systemDir = '' } = optionsIn(base);
    const area = await openArea(dataDir, systemDir);
    const binaries = await usableBinaries(await platformPackage(), area.account, systemDir);
    // It waits to read its settings, before it has entered the data folder: until the pipe has a writer.
    const pipe = join(base, 'settings.pipe');
    execFileSync('mkfifo', ['-m', '666', pipe]);
    const early = spawn(binaries.postgres, ['-D', area.data, '-c', `config_file=${pipe}`], {
      ...spawnAs(area.account),
      cwd: dirname(binaries.postgres),
      stdio: 'ignore',
    });
    onTestFinished(() => killQuietly(early.pid ?? 0));
    await sleep(200);
    expect(existsSync(fileIn(base))).toBe(false);
    if (content !== undefined) await leave(base, content);
    const goesOn = sleep(1_000).then(async () => {
      const writer = await open(pipe, 'r+');
      // It reads them twice; the second time from a file.
      await copyFile(join(area.data, 'postgresql.conf'), `${pipe}.file`);
      await chmod(`${pipe}.file`, 0o644);
      await rename(`${pipe}.file`, pipe);
      await writer.close();
    });
    const server = await start(optionsIn(base));
    expect(runs(early.pid ?? 0)).toBe(false);
    expect(await query(server.url, 'select count(*)::int as n from reads')).toEqual([{ n: 1000 }]);
    await goesOn;
  });

  test('killed with it or not, at any moment, leaves a folder that starts with its data', async () => {
    const base = await databaseFolder();
    const options = optionsIn(base);
    const first = await startEmbedded(options);
    await query(first.url, 'create table rounds (n int)');
    await first.stop();
    const random = seededRandom();
    const owners = async (): Promise<string> => JSON.stringify(await readdir(join(options.dataDir, 'owner')));
    for (let round = 0; round < 16; round++) {
      const before = await owners();
      const holder = hold(options);
      await expect.poll(owners, { interval: 1, timeout: 30_000 }).not.toBe(before);
      const servers = (): number[] => processesOf(join(options.dataDir, 'data'));
      if (round % 2 === 0) {
        killAsItWritesItsFile(base, servers);
        await killed(holder);
      } else {
        // A start takes some 100 ms from here.
        await sleep(random.between(0, 120));
        await killed(holder);
        if (round % 4 === 1) for (const pid of servers()) killQuietly(pid);
      }
      const server = await startEmbedded(options);
      await query(server.url, `insert into rounds values (${round})`);
      expect(await query(server.url, 'select count(*)::int as n from rounds')).toEqual([{ n: round + 1 }]);
      await server.stop();
      await expect.poll(() => processesOf(base)).toEqual([]);
    }
  });
});
