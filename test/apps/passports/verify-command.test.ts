import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { sha256Hex } from '../../../src/apps/passports/compile/hash.ts';
import { envelopeOf } from '../../../src/apps/passports/export/envelope.ts';
import { addVerify } from '../../../src/apps/passports/verify-command.ts';
import { disclosedSample, individualRecord, publicKey } from './page/sample.ts';

let folder: string;
let printed: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'verify-'));
  printed = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += text;
    return true;
  });
});
afterEach(async () => {
  vi.restoreAllMocks();
  process.exitCode = 0;
  await rm(folder, { recursive: true, force: true });
});

async function run(text: string, ...options: readonly string[]): Promise<string> {
  const file = join(folder, 'passport.json');
  await writeFile(file, text);
  const program = new Command().exitOverride();
  addVerify(program);
  await program.parseAsync(['verify', file, ...options], { from: 'user' });
  return printed;
}

test('BPC-15: tallyman verify accepts what was signed, and says where the keys came from', async () => {
  const text = JSON.stringify(envelopeOf(disclosedSample('public')));
  expect(await run(text)).toContain('does not show who signed');
  expect(process.exitCode ?? 0).toBe(0);
  printed = '';
  const key = `key-1=${Buffer.from(publicKey).toString('base64')}`;
  expect(JSON.parse(await run(text, '--key', key, '--json'))).toMatchObject({ ok: true, keysFrom: 'reader' });
});

test('BPC-15: tallyman verify names what was changed and fails', async () => {
  const envelope = envelopeOf(disclosedSample('public'));
  const payload = envelope.version.payload.replace('Sample City', 'Simple City');
  const shown = await run(JSON.stringify({ ...envelope, version: { ...envelope.version, payload } }));
  expect(shown).toContain('MISMATCH  version: payload /points/1');
  expect(process.exitCode).toBe(1);
});

test('BPC-11, BPC-15: tallyman verify names the event of the battery that was changed, and the one that is missing', async () => {
  const first = individualRecord(1, 'fullCycles', { value: 100 });
  const second = individualRecord(2, 'fullCycles', { value: 200 }, sha256Hex(Buffer.from(first.content)));
  const envelope = envelopeOf(disclosedSample('legitimate_interest', { individual: [first, second] }));
  expect(await run(JSON.stringify(envelope))).toContain('fits      events: 2 signed, in their order');
  const [one, two] = envelope.events;
  const events = [{ ...one, content: one?.content.replace('100', '101') }, two];
  expect(await run(JSON.stringify({ ...envelope, events }))).toContain(
    'MISMATCH  events /events/0: the signature of event 1 does not fit',
  );
  expect(process.exitCode).toBe(1);
  expect(await run(JSON.stringify({ ...envelope, events: [two] }))).toContain(
    'MISMATCH  events: event 1 is missing',
  );
});

test('a key that is none is refused', async () => {
  await expect(run('{}', '--key', 'key-1=abc')).rejects.toThrow('32 bytes');
});
