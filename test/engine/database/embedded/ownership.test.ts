import promises, { mkdir, readdir, stat, utimes, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Area, openArea } from '../../../../src/engine/database/embedded/area.ts';
import { claimOwnership, type Ownership } from '../../../../src/engine/database/embedded/ownership.ts';
import {
  ownIdentity,
  type ProcessIdentity,
} from '../../../../src/engine/database/embedded/process-identity.ts';
import { folder, onLinux, optionsIn } from './support/fixture.ts';

/** The next look at a folder finds this instead of the truth: how things stood before others went on. */
function showOnce(view: string[]): { readonly wasShown: () => boolean } {
  const { readdir: real } = promises;
  const show = (readdir: unknown) => {
    Object.assign(promises, { readdir });
    syncBuiltinESMExports();
  };
  show(async () => {
    show(real);
    return view;
  });
  return { wasShown: () => promises.readdir === real };
}

const newArea = async (): Promise<Area> => {
  const base = await folder();
  return openArea(optionsIn(base).dataDir, join(base, 'system'));
};

const claim = async (area: Area): Promise<Ownership> => {
  const ownership = await claimOwnership(area);
  onTestFinished(() => ownership.release());
  return ownership;
};

/** A record as another process would have left it. */
async function leave(area: Area, changes: Partial<ProcessIdentity>, generation = 7): Promise<string> {
  const record = { ...(await ownIdentity()), since: 'yesterday', released: false, ...changes };
  await mkdir(join(area.folder, 'owner'), { recursive: true });
  const path = join(area.folder, 'owner', `${String(generation).padStart(6, '0')}.json`);
  await writeFile(path, JSON.stringify(record));
  return path;
}

const outcomes = async (claims: Promise<Ownership>[]): Promise<{ won: Ownership[]; codes: unknown[] }> => {
  const settled = await Promise.allSettled(claims);
  return {
    won: settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : [])),
    codes: settled.flatMap((each) => (each.status === 'rejected' ? [each.reason.code] : [])),
  };
};

test.each([
  { of: 'a new folder', prepare: async () => {} },
  { of: 'a folder whose owner is dead', prepare: (area: Area) => leave(area, { startedAt: '1' }) },
])('of many claims of $of at once exactly one wins, again and again', async ({ prepare }) => {
  for (let round = 0; round < 20; round++) {
    const area = await newArea();
    await prepare(area);
    const { won, codes } = await outcomes(Array.from({ length: 12 }, () => claimOwnership(area)));
    expect(won).toHaveLength(1);
    expect(new Set(codes)).toEqual(new Set(['EMBEDDED_IN_USE']));
    await won[0]?.release();
  }
});

test('claims and releases in quick succession never overlap', async () => {
  const area = await newArea();
  let holders = 0;
  let turns = 0;
  await Promise.all(
    Array.from({ length: 6 }, async () => {
      for (let tries = 0; tries < 40; tries++) {
        const ownership = await claimOwnership(area).catch(() => undefined);
        if (!ownership) continue;
        expect(++holders).toBe(1);
        turns++;
        await new Promise((resolve) => setImmediate(resolve));
        holders--;
        await ownership.release();
      }
    }),
  );
  expect(turns).toBeGreaterThan(6);
});

test('the record that counts is never removed, older ones are', async () => {
  const area = await newArea();
  await (await claimOwnership(area)).release();
  await (await claimOwnership(area)).release();
  await claim(area);
  expect(await readdir(join(area.folder, 'owner'))).toEqual(['000003.json']);
});

test.runIf(onLinux)(
  'a starter that was asleep while others came and went does not win with a number below theirs',
  async () => {
    const area = await newArea();
    // It saw 6, released; by now 7 has come and gone and been removed, and 8 is held.
    await leave(area, {}, 8);
    const outdated = showOnce(['000006.json']);
    await expect(claimOwnership(area)).rejects.toMatchObject({ code: 'EMBEDDED_IN_USE' });
    expect(outdated.wasShown()).toBe(true);
    expect(await readdir(join(area.folder, 'owner'))).toEqual(['000008.json']);
  },
);

describe.runIf(onLinux)('a record', () => {
  test('of a live process counts', async () => {
    const area = await newArea();
    await leave(area, {});
    await expect(claimOwnership(area)).rejects.toMatchObject({ code: 'EMBEDDED_IN_USE' });
  });

  test('whose pid now belongs to a younger process does not', async () => {
    const area = await newArea();
    await leave(area, { startedAt: '1' });
    await claim(area);
  });

  test('from before a reboot does not', async () => {
    const area = await newArea();
    await leave(area, { boot: 'another' });
    await claim(area);
  });

  test('from another container counts while it is touched', async () => {
    const area = await newArea();
    const path = await leave(area, { pidNamespace: 'pid:[1]', host: 'elsewhere' });
    const beat = setInterval(() => void utimes(path, new Date(), new Date()), 500);
    onTestFinished(() => clearInterval(beat));
    await expect(claimOwnership(area)).rejects.toMatchObject({
      code: 'EMBEDDED_IN_USE',
      message: expect.stringContaining('on elsewhere'),
    });
  });

  test('from another container that has gone silent does not', async () => {
    const area = await newArea();
    await leave(area, { pidNamespace: 'pid:[1]', host: 'elsewhere' });
    await claim(area);
  });

  test('is touched by its owner', async () => {
    const area = await newArea();
    await claim(area);
    const path = join(area.folder, 'owner/000001.json');
    const before = (await stat(path)).mtimeMs;
    await expect.poll(async () => (await stat(path)).mtimeMs).toBeGreaterThan(before);
  });

  test('that a power cut left empty does not count', async () => {
    const area = await newArea();
    await mkdir(join(area.folder, 'owner'), { recursive: true });
    await writeFile(join(area.folder, 'owner/000004.json'), '');
    await claim(area);
  });
});
