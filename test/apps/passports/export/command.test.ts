import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { isBundle } from '../../../../src/apps/passports/export/verify-bundle.ts';
import { scratch, start } from '../../../cli/support.ts';
import { testKeys } from '../means.ts';
import { link, publicServer } from '../public/support.ts';

const key = `test-1=${Buffer.from(testKeys.publicKeys['test-1'] ?? []).toString('base64')}`;
const supplement = new URL('../../../../examples/passports/catenax-supplement.json', import.meta.url);

test('BPC-15, BPC-16: passports export writes what tallyman verify accepts offline; what cannot be exported leaves no file', {
  timeout: 300_000,
}, async () => {
  const { databaseUrl, url } = await publicServer();
  const cwd = await scratch();
  const env = {
    BPC_SIGNING_ED25519_PRIVATE_KEY_BASE64: Buffer.alloc(32, 7).toString('base64'),
    BPC_SIGNING_KEY_ID: 'test-1',
    TALLYMAN_PASSPORTS_HOST: 'passports.example',
  };
  const cli = (...args: string[]) =>
    start('src/cli/main.ts', args, { cwd, env: { ...env, DATABASE_URL: databaseUrl } }).ended;
  // Without database and keys of its own.
  const offline = (...args: string[]) => start('src/cli/main.ts', args, { cwd, env: {} }).ended;

  const bundle = await cli('passports', 'export', 'SP100-000001', '--json');
  expect(bundle).toMatchObject({ code: 0 });
  const { file } = JSON.parse(bundle.stdout);
  expect(file).toBe('passport-SP100-000001.tar');
  expect(isBundle(await readFile(join(cwd, file)))).toBe(true);
  const checked = await offline('verify', file, '--key', key);
  expect(checked).toMatchObject({ code: 0 });
  expect(checked.stdout).toContain('fits      bundle: signature, over the manifest');
  const bytes = await readFile(join(cwd, file));
  // The same bytes as over HTTP.
  const served = await fetch(`${url}${link}?format=bundle`);
  expect(Buffer.from(await served.arrayBuffer()).equals(bytes)).toBe(true);
  bytes[bytes.indexOf('580')] = 0x34;
  await writeFile(join(cwd, 'changed.tar'), bytes);
  expect(await offline('verify', 'changed.tar', '--key', key)).toMatchObject({ code: 1 });

  await writeFile(join(cwd, 'supplement.json'), await readFile(supplement));
  const catenax = [
    'passports',
    'export',
    `https://passports.example${link}`,
    '-f',
    'catenax',
    '-o',
    'pass.json',
  ];
  const refused = await cli(...catenax, '--supplement', 'supplement.json');
  expect(refused.stderr).toContain('needs values of all access points');
  const gaps = await cli(...catenax, '--reader', 'owner');
  expect(gaps.stderr).toContain('/metadata/economicOperatorId: is needed');
  expect(await readdir(cwd)).not.toContain('pass.json');
  expect(await cli(...catenax, '--reader', 'owner', '--supplement', 'supplement.json')).toMatchObject({
    code: 0,
  });
  expect(JSON.parse(await readFile(join(cwd, 'pass.json'), 'utf8'))).toMatchObject({
    metadata: { status: 'approved', economicOperatorId: 'BPNL00000000SAMP' },
  });
  expect((await cli('passports', 'export', 'NONE')).stderr).toContain(
    'no battery with the serial number NONE',
  );
});
