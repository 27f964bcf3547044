import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chown, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openArea } from '../../../../src/engine/database/embedded/area.ts';
import { platformPackage, usableBinaries } from '../../../../src/engine/database/embedded/binaries.ts';
import { startEmbedded } from '../../../../src/engine/database/embedded/index.ts';
import { choosePort } from '../../../../src/engine/database/embedded/port.ts';
import { launch, stopPostmaster } from '../../../../src/engine/database/embedded/postmaster.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import {
  databaseFolder,
  folder,
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

describe('a folder whose owner lives', () => {
  test('is refused, naming the process and the way out, and its server is left alone', async () => {
    const base = await databaseFolder();
    const holder = hold(optionsIn(base));
    const { url, pid } = await holder.answer;
    await expect(startEmbedded(optionsIn(base))).rejects.toMatchObject({
      code: 'EMBEDDED_IN_USE',
      message: expect.stringMatching(
        new RegExp(`process ${holder.child.pid}\\b.*Stop that process first.*DATABASE_URL`),
      ),
      details: { pid: holder.child.pid },
    });
    expect(await query(url, 'select pg_postmaster_start_time() is not null as up')).toEqual([{ up: true }]);
    expect(runs(pid) || !onLinux).toBe(true);
    await holder.finish();
    await start(optionsIn(base));
  });

  test('is refused to a second start in the same process', async () => {
    const base = await databaseFolder();
    await start(optionsIn(base));
    await expect(startEmbedded(optionsIn(base))).rejects.toMatchObject({
      code: 'EMBEDDED_IN_USE',
      message: expect.stringContaining(`this very process, ${process.pid}`),
    });
  });
});

test('of two processes that start one new folder at the same moment, one wins and nothing is damaged', async () => {
  const base = await folder();
  const holders = [hold(optionsIn(base)), hold(optionsIn(base)), hold(optionsIn(base))];
  const answers = await Promise.all(holders.map(({ answer }) => answer));
  const [winner, ...others] = answers.filter(({ code }) => code === undefined);
  expect(others).toEqual([]);
  expect(answers.filter(({ code }) => code === 'EMBEDDED_IN_USE')).toHaveLength(2);
  await query(winner?.url ?? '', 'create table one (n int)');
  await Promise.all(holders.map((holder) => holder.finish()));
  const server = await start(optionsIn(base));
  expect(await query(server.url, 'select * from one')).toEqual([]);
});

describe.runIf(onLinux)('after the owner was killed', () => {
  test('its server, still running, is taken over with everything that was committed', async () => {
    const base = await databaseFolder();
    const holder = hold(optionsIn(base));
    const orphan = await holder.answer;
    await query(orphan.url, 'create table reads as select generate_series(1, 5000) as n');
    await killed(holder);
    expect(runs(orphan.pid)).toBe(true);

    const server = await start(optionsIn(base));
    expect(runs(orphan.pid)).toBe(false);
    expect(server.pid).not.toBe(orphan.pid);
    expect(server.url).toBe(orphan.url);
    expect(await query(server.url, 'select count(*)::int as n from reads')).toEqual([{ n: 5000 }]);
    const log = await readFile(join(optionsIn(base).dataDir, 'server.log'), 'utf8');
    expect(log).not.toContain('not properly shut down');
  });

  test('of two processes that want to take over, one does', async () => {
    const base = await databaseFolder();
    const holder = hold(optionsIn(base));
    await query((await holder.answer).url, 'create table kept (n int)');
    await killed(holder);
    const heirs = [hold(optionsIn(base)), hold(optionsIn(base))];
    const answers = await Promise.all(heirs.map(({ answer }) => answer));
    expect(answers.map(({ code }) => code).sort()).toEqual(['EMBEDDED_IN_USE', undefined]);
    const winner = answers.find(({ code }) => code === undefined);
    expect(await query(winner?.url ?? '', 'select * from kept')).toEqual([]);
  });

  test('a server that was killed with it recovers', async () => {
    const base = await databaseFolder();
    const holder = hold(optionsIn(base));
    const orphan = await holder.answer;
    await query(orphan.url, 'create table reads as select generate_series(1, 5000) as n');
    await killed(holder);
    process.kill(orphan.pid, 'SIGKILL');
    const server = await start(optionsIn(base));
    expect(await query(server.url, 'select count(*)::int as n from reads')).toEqual([{ n: 5000 }]);
  });

  test('a backend of the killed server that is still at it is waited for', async () => {
    const base = await databaseFolder();
    const server = await start(optionsIn(base));
    const client = new pg.Client({ connectionString: server.url });
    client.on('error', () => {});
    await client.connect();
    const { rows } = await client.query('select pg_backend_pid() as pid');
    process.kill(rows[0].pid, 'SIGSTOP');
    onTestFinished(() => killQuietly(rows[0].pid));
    server.kill('SIGKILL');
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

  test('a server of its that was not yet to be seen when we looked is found when ours meets it', async () => {
    const base = await databaseFolder();
    const options = optionsIn(base);
    const holder = hold(options);
    const orphan = await holder.answer;
    await killed(holder);
    const systemDir = join(base, 'system');
    const area = await openArea(options.dataDir, systemDir);
    const binaries = await usableBinaries(await platformPackage(), area.account, systemDir);
    const port = await choosePort(area, undefined);
    const launched = await launch({ area, binaries, port, settings: {}, logger: silentLogger });
    if (launched === 'port taken') throw new Error('somebody took the port; run the test again');
    expect(runs(orphan.pid)).toBe(false);
    expect(runs(launched.pid)).toBe(true);
    await stopPostmaster(launched, binaries, silentLogger);
  });

  test('at any moment of its start, the next start works', async () => {
    const base = await databaseFolder();
    const expected = optionsIn(base);
    for (let after = 0; after < 12; after++) {
      const holder = hold(expected);
      // From when it has become the owner, which is where the risky part begins, to when its server is ready.
      const before = JSON.stringify(await readdir(join(expected.dataDir, 'owner')));
      await expect
        .poll(async () => JSON.stringify(await readdir(join(expected.dataDir, 'owner'))), {
          interval: 1,
          timeout: 30_000,
        })
        .not.toBe(before);
      await sleep(after * 6);
      await killed(holder);
      const server = await startEmbedded(expected);
      expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }]);
      await server.stop();
    }
    await expect.poll(() => processesOf(base)).toEqual([]);
  });

  test('a process that got the dead server’s pid is neither harmed nor in the way', async () => {
    const base = await databaseFolder();
    const server = await start(optionsIn(base));
    const file = join(optionsIn(base).dataDir, 'data/postmaster.pid');
    const owner = await stat(file);
    const text = await readFile(file, 'utf8');
    server.kill('SIGKILL');
    await expect.poll(() => processesOf(base)).toEqual([]);
    await server.stop();
    // Same account as the server: PostgreSQL takes another account's process for somebody else's by itself.
    const bystander = spawn(
      'sleep',
      ['60'],
      process.geteuid?.() === 0 ? { uid: owner.uid, gid: owner.gid } : {},
    );
    onTestFinished(() => killQuietly(bystander.pid ?? 0));
    await writeFile(file, text.replace(/^\d+/, String(bystander.pid)));
    if (process.geteuid?.() === 0) await chown(file, owner.uid, owner.gid);

    const next = await start(optionsIn(base));
    expect(await query(next.url, 'select 1 as one')).toEqual([{ one: 1 }]);
    expect(bystander.exitCode ?? bystander.signalCode).toBeNull();
  });
});

describe.runIf(onLinux)('a first start that is killed while it makes the database', () => {
  const drafts = async (dataDir: string): Promise<string[]> =>
    (await readdir(dataDir).catch(() => [])).filter((name) => name.startsWith('init-'));

  test.each([
    { how: 'together with initdb', initdbToo: true },
    { how: 'while initdb runs on', initdbToo: false },
  ])('$how does not stand in the way of the next', async ({ initdbToo }) => {
    /** Killed half-way: some of the cluster is there, not all. Undefined: it was ready before we came to it. */
    const killedHalfWay = async (): Promise<string | undefined> => {
      const base = await folder();
      const { dataDir } = optionsIn(base);
      const isReady = (): boolean => existsSync(join(dataDir, 'data'));
      const holder = hold(optionsIn(base));
      await expect
        .poll(
          async () =>
            isReady() || existsSync(join(dataDir, (await drafts(dataDir))[0] ?? '-', 'data/pg_hba.conf')),
          { timeout: 60_000, interval: 5 },
        )
        .toBe(true);
      await killed(holder);
      if (initdbToo) for (const pid of processesOf(base)) killQuietly(pid);
      return isReady() ? undefined : base;
    };
    let base = await killedHalfWay();
    for (let tries = 1; base === undefined && tries < 5; tries += 1) base = await killedHalfWay();
    if (base === undefined) throw new Error('it was ready before it could be killed, five times');
    const { dataDir } = optionsIn(base);
    expect(await drafts(dataDir)).toHaveLength(1);

    const server = await start(optionsIn(base));
    expect(await query(server.url, 'select current_database() as name')).toEqual([{ name: 'tallyman' }]);
    if (initdbToo) expect(await drafts(dataDir)).toEqual([]);
    // Its start is over when the next one's folder has been tidied.
    await server.stop();
    await expect.poll(() => processesOf(base)).toEqual([]);
    await server.restart();
    expect(await drafts(dataDir)).toEqual([]);
  });
});
