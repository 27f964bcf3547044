import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { loadConfig } from '../../src/host/config.ts';
import { loadSecretBox } from '../../src/host/process/secrets.ts';
import { SecretBox } from '../../src/secrets/box.ts';

const box = new SecretBox(Buffer.alloc(32, 1));

test('WH-6: what is sealed opens under the same master secret and in its own place only', () => {
  const sealed = box.seal('whsec_abc', 'webhook-endpoint:1');
  expect(sealed).not.toContain('whsec_abc');
  expect(box.seal('whsec_abc', 'webhook-endpoint:1')).not.toBe(sealed);
  expect(box.open(sealed, 'webhook-endpoint:1')).toBe('whsec_abc');
  const unreadable = expect.objectContaining({ code: 'SECRET_UNREADABLE' });
  expect(() => box.open(sealed, 'webhook-endpoint:2')).toThrow(unreadable);
  expect(() => new SecretBox(Buffer.alloc(32, 2)).open(sealed, 'webhook-endpoint:1')).toThrow(unreadable);
  const flipped = Buffer.from(sealed.slice(3), 'base64url');
  flipped[14] = (flipped[14] ?? 0) ^ 1;
  expect(() => box.open(`v1.${flipped.toString('base64url')}`, 'webhook-endpoint:1')).toThrow(unreadable);
  for (const broken of ['', 'v1.', 'v2.AAAA', 'v1.AAAA'])
    expect(() => box.open(broken, 'x')).toThrow(unreadable);
});

test('SEC-7: a ring seals under its first master secret, and opens what any of them has sealed', () => {
  const other = new SecretBox(Buffer.alloc(32, 2));
  const ring = new SecretBox(Buffer.alloc(32, 2), [Buffer.alloc(32, 1)]);
  expect(ring.keyIds).toEqual([other.keyId, box.keyId]);
  for (const each of [box, other]) expect(ring.open(each.seal('x', 'c'), 'c')).toBe('x');
  const sealed = ring.seal('x', 'c');
  expect(sealed.startsWith(`v2.${other.keyId}.`)).toBe(true);
  expect(other.open(sealed, 'c')).toBe('x');
  expect(() => box.open(sealed, 'c')).toThrow(expect.objectContaining({ code: 'SECRET_UNREADABLE' }));
  expect(ring.derive('p')).toEqual(other.derive('p'));
  expect(ring.derive('p', box.keyId)).toEqual(box.derive('p'));
  expect(() => box.derive('p', other.keyId)).toThrow(/not configured/);
});

test('a short master secret is refused', () => {
  expect(() => new SecretBox(Buffer.alloc(31))).toThrow(/at least 32 bytes/);
});

test('with a DATABASE_URL it has to be configured; without one it is made once, for its owner alone', async () => {
  await expect(loadSecretBox(loadConfig([], { env: { DATABASE_URL: 'postgres://x/y' } }))).rejects.toThrow(
    /TALLYMAN_SECRET_KEY/,
  );
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-secret-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const config = loadConfig([], { env: { TALLYMAN_SECRET_FILE: join(folder, 'deep', 'secret.key') } });
  const [first, ...others] = await Promise.all(Array.from({ length: 8 }, () => loadSecretBox(config)));
  const sealed = first?.seal('x', 'c') ?? '';
  for (const other of [...others, await loadSecretBox(config)]) expect(other.open(sealed, 'c')).toBe('x');
  expect((await stat(join(folder, 'deep', 'secret.key'))).mode & 0o777).toBe(0o600);
});
