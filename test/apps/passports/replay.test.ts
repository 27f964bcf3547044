import { expect, test } from 'vitest';
import { replayVersion } from '../../../src/apps/passports/replay.ts';
import { start } from '../../cli/support.ts';
import { world } from './world.ts';

test('BPC-15: replay of every version gives its three hashes again, with another clock, locale and time zone', async () => {
  const at = await world();
  const compiled = at.versions.filter(({ receiptHash }) => receiptHash !== null);
  expect(compiled.length).toBeGreaterThan(4);
  const expected = compiled.map(({ id, payloadHash, proofHash, receiptHash }) => ({
    versionId: id,
    payloadHash,
    proofHash,
    receiptHash,
    build: { compiled: 'test-build', replayed: 'test-build' },
  }));
  for (const [locale, timeZone, years] of [
    ['tr-TR', 'Pacific/Chatham', 30],
    ['ar-EG', 'America/St_Johns', -20],
  ] as const) {
    const { ended } = start('test/apps/passports/replay-process.ts', [], {
      env: {
        DATABASE_URL: at.url,
        TZ: timeZone,
        LC_ALL: `${locale.replace('-', '_')}.UTF-8`,
        CLOCK_SHIFT_MS: String(years * 365 * 86_400_000),
      },
    });
    const { stdout, stderr } = await ended;
    expect(stderr).toBe('');
    const said = JSON.parse(stdout) as { replayed: unknown; locale: string; timeZone: string; year: number };
    expect(said).toMatchObject({ replayed: expected, locale, timeZone });
    expect(Math.abs(said.year - new Date().getFullYear())).toBeGreaterThan(15);
  }
});

test('BPC-8, BPC-15: another build does not compile a version, and replays what was compiled', async () => {
  const at = await world();
  const refused = at.versions.find(({ build }) => build === 'another');
  expect(refused).toMatchObject({
    state: 'COMPILING',
    receiptHash: null,
    error: { code: 'BUILD_MISMATCH', message: expect.stringContaining('"another"') },
  });
  const [version] = at.versions.filter(({ receiptHash }) => receiptHash !== null);
  const newer = { ...at.means, build: 'newer' };
  expect(await replayVersion(at.on, version?.id ?? '', newer)).toMatchObject({
    receiptHash: version?.receiptHash,
    build: { compiled: 'test-build', replayed: 'newer' },
  });
  await at.rows(`alter table passports.artefacts disable trigger user`);
  await at.rows(`update passports.artefacts set payload = payload || ' ' where version_id = $1`, [
    version?.id,
  ]);
  await expect(replayVersion(at.on, version?.id ?? '', newer)).rejects.toMatchObject({
    code: 'REPLAY_MISMATCH',
    message: expect.stringContaining('Build "test-build" compiled it'),
    details: { differences: ['stored payload'] },
  });
});
