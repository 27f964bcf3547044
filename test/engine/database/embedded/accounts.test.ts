import { existsSync, readdirSync } from 'node:fs';
import {
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startEmbedded } from '../../../../src/engine/database/embedded/index.ts';
import { relocate } from '../../../../src/engine/database/embedded/relocation.ts';
import {
  asRoot,
  cloneWithoutLinks,
  databaseFolder,
  folder,
  hold,
  NOBODY,
  nobodyCanReadUs,
  optionsIn,
  query,
  start,
} from './support/fixture.ts';

const uidOf = async (pid: number): Promise<number> => (await stat(`/proc/${pid}`)).uid;

describe.runIf(asRoot)('started by root', () => {
  test('the server runs under another account, which owns the data and nothing beside it', async () => {
    const base = await folder();
    const server = await start(optionsIn(base));
    const uid = await uidOf(server.pid);
    expect(uid).not.toBe(0);
    expect((await readFile(`/proc/${server.pid}/status`, 'utf8')).match(/^Groups:(.*)$/m)?.[1]?.trim()).toBe(
      '',
    );
    const { dataDir } = optionsIn(base);
    expect(await stat(join(dataDir, 'data'))).toMatchObject({ uid, mode: 0o40700 });
    expect((await stat(dataDir)).uid).toBe(0);
    for (const name of await readdir(dataDir)) {
      expect((await stat(join(dataDir, name))).uid, name).toBe(name === 'data' ? uid : 0);
    }
  });

  test('in a clone that only root can enter, programs and data are put where the server reaches them', async () => {
    const base = await folder();
    const home = join(base, 'home');
    const clone = await cloneWithoutLinks(join(home, 'plant'));
    await chmod(home, 0o700);
    const options = { dataDir: join(clone, '.tallyman/postgres'), systemDir: join(base, 'system') };

    // The links are the last thing made, so a copy that is seen without them was seen too early.
    const all = join(base, 'system/binaries');
    const seen = new Set<boolean>();
    const look = setInterval(() => {
      const copy = existsSync(all) ? readdirSync(all).find((name) => !name.endsWith('.tmp')) : undefined;
      if (copy) seen.add(existsSync(join(all, copy, 'native/lib/libpq.so.5')));
    }, 1);
    onTestFinished(() => clearInterval(look));
    // Two first starts at once also copy the programs at once.
    const holders = [hold(options, { clone }), hold(options, { clone })];
    const answers = await Promise.all(holders.map(({ answer }) => answer));
    expect(answers.map(({ code }) => code).sort()).toEqual(['EMBEDDED_IN_USE', undefined]);
    const first = answers.find(({ code }) => code === undefined);
    await query(first?.url ?? '', 'create table kept (n int)');
    expect(await uidOf(first?.pid ?? 0)).not.toBe(0);
    await Promise.all(holders.map((holder) => holder.finish()));

    expect((await stat(home)).mode & 0o777).toBe(0o700);
    expect((await lstat(options.dataDir)).isSymbolicLink()).toBe(true);
    const place = await realpath(options.dataDir);
    expect(place).toMatch(join(base, 'system/postgres/plant-'));
    expect(await readdir(join(base, 'system/postgres'))).toHaveLength(1);
    const copies = await readdir(join(base, 'system/binaries'));
    expect(copies).toHaveLength(1);
    expect([...seen]).toEqual([true]);
    const programs = join(base, 'system/binaries', copies[0] ?? '', 'native/bin/postgres');
    expect(await stat(programs)).toMatchObject({ uid: 0, mode: 0o100755 });

    // Killed and started again, as anywhere else.
    const second = hold(options, { clone });
    const orphan = await second.answer;
    second.child.kill('SIGKILL');
    await expect.poll(() => second.child.signalCode).toBe('SIGKILL');
    const third = hold(options, { clone });
    const { url, code } = await third.answer;
    expect(code).toBeUndefined();
    expect(await query(url, 'select * from kept')).toEqual([]);
    expect(url).toBe(orphan.url);
    await third.finish();
  });

  test('two that find the folder barred at the same moment end up with one place', async () => {
    const base = await folder();
    const asked = join(base, 'pg');
    const nobody = { uid: NOBODY, gid: NOBODY, name: 'nobody' };
    const relocations = Array.from({ length: 5 }, () => relocate(asked, nobody, join(base, 'system')));
    await Promise.all(relocations);
    const places = await readdir(join(base, 'system/postgres'));
    expect(places).toHaveLength(1);
    expect(await realpath(asked)).toBe(join(base, 'system/postgres', places[0] ?? ''));
  });

  test('a moved clone keeps its database, a copied one is refused it, a removed link means an empty one', async () => {
    const base = await folder();
    const home = join(base, 'home');
    await mkdir(home, { mode: 0o700 });
    const systemDir = join(base, 'system');
    const at = (name: string) => ({ dataDir: join(home, name, '.tallyman/postgres'), systemDir });
    const original = await start(at('a'));
    await query(original.url, 'create table kept (n int)');
    await original.stop();

    await rename(join(home, 'a'), join(home, 'b'));
    const moved = await start(at('b'));
    expect(await query(moved.url, 'select * from kept')).toEqual([]);
    await moved.stop();

    await cp(join(home, 'b'), join(home, 'c'), { recursive: true, verbatimSymlinks: true });
    await expect(startEmbedded(at('c'))).rejects.toMatchObject({ code: 'EMBEDDED_DATA_SHARED' });

    await rm(join(home, 'c'), { recursive: true });
    const fresh = await start(at('c'));
    await expect(query(fresh.url, 'select * from kept')).rejects.toThrow('does not exist');
    await fresh.stop();
    await rm(await realpath(at('c').dataDir), { recursive: true });
    await expect(startEmbedded(at('c'))).rejects.toMatchObject({ code: 'EMBEDDED_DATA_GONE' });
  });

  test('a database the account can no longer reach is not replaced by an empty one', async () => {
    const base = await folder();
    const home = join(base, 'home');
    const options = { dataDir: join(home, 'pg'), systemDir: join(base, 'system') };
    await (await start(options)).stop();
    await chmod(home, 0o700);
    await expect(startEmbedded(options)).rejects.toMatchObject({
      code: 'EMBEDDED_UNREACHABLE',
      message: expect.stringContaining(`chmod o+x ${home}`),
    });
  });

  test('a system folder that others can write to is not trusted', async () => {
    const base = await folder();
    const home = join(base, 'home');
    await mkdir(home, { mode: 0o700 });
    await mkdir(join(base, 'system'));
    await chmod(join(base, 'system'), 0o777);
    await expect(
      startEmbedded({ dataDir: join(home, 'pg'), systemDir: join(base, 'system') }),
    ).rejects.toMatchObject({ code: 'EMBEDDED_SYSTEM_DIR' });
  });
});

// Skipped unless root, who can become somebody else, runs the tests; when an ordinary user does, every other test shows the same.
describe.runIf(nobodyCanReadUs())('started by an ordinary user', () => {
  test('the server runs as that user, also after root has started it in between', async () => {
    const base = await folder();
    await chown(base, NOBODY, NOBODY);
    const first = hold(optionsIn(base), { uid: NOBODY });
    const { url, pid, code, message } = await first.answer;
    expect(code, message).toBeUndefined();
    expect(await uidOf(pid)).toBe(NOBODY);
    await query(url, 'create table kept (n int)');
    await first.finish();

    const byRoot = await start(optionsIn(base));
    expect(await uidOf(byRoot.pid)).toBe(NOBODY);
    await byRoot.stop();

    const again = hold(optionsIn(base), { uid: NOBODY });
    expect(await query((await again.answer).url, 'select * from kept')).toEqual([]);
    await again.finish();
  });

  test('in that user’s folder root makes a database the user can start later', async () => {
    const base = await folder();
    await chown(base, NOBODY, NOBODY);
    await (await start(optionsIn(base))).stop();
    expect((await stat(join(base, '.tallyman'))).uid).toBe(NOBODY);
    const later = hold(optionsIn(base), { uid: NOBODY });
    const { code, message } = await later.answer;
    expect(code, message).toBeUndefined();
    await later.finish();
  });

  test('a folder of another account is refused with the reason', async () => {
    const base = await databaseFolder();
    await (await start(optionsIn(base))).stop();
    const answer = await hold(optionsIn(base), { uid: NOBODY }).answer;
    expect(answer).toMatchObject({ code: 'EMBEDDED_NOT_YOURS', message: expect.stringContaining('as root') });
  });
});
