import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { exitCodes, usage } from '../../host/cli/exit.ts';
import { examples, type JsonOption, list, withJson } from '../../host/cli/options.ts';
import { show } from '../../host/cli/output/print.ts';
import { type EnvelopeReport, verifyEnvelope } from './export/envelope.ts';
import { isBundle, verifyBundle } from './export/verify-bundle.ts';

interface VerifyOptions extends JsonOption {
  readonly key?: readonly string[];
  readonly qr?: string;
}

/** `tallyman verify`: offline, without database and configuration. */
export function addVerify(program: Command): void {
  withJson(program.command('verify'))
    .description('check an exported battery passport, offline')
    .argument('<file>', 'the passport as JSON, or a bundle')
    .option(
      '--key <id=key>',
      'a public key that you trust: its id and its 32 bytes in base64 (may be repeated)',
      list,
    )
    .option('--qr <text>', 'what the document code says: BPC1|pv=…')
    .addHelpText(
      'after',
      examples([
        'verify passport.json',
        'verify passport-SP100-000001.tar',
        'verify passport.json --key key-1=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo= --json',
      ]),
    )
    .action(async (file: string, options: VerifyOptions) => {
      const bytes = await readFile(file).catch(() => {
        throw usage(`the file ${file} cannot be read`);
      });
      const given = {
        ...(options.key ? { keys: Object.fromEntries(options.key.map(keyOf)) } : {}),
        ...(options.qr === undefined ? {} : { qr: options.qr }),
      };
      const report = isBundle(bytes)
        ? verifyBundle(bytes, given)
        : verifyEnvelope(bytes.toString('utf8'), given);
      show(options.json, report, () => forPeople(report));
      if (!report.ok) process.exitCode = exitCodes.failed;
    });
}

function keyOf(text: string): readonly [string, Uint8Array] {
  const at = text.indexOf('=');
  const bytes = Uint8Array.from(Buffer.from(text.slice(at + 1), 'base64'));
  if (at < 1 || bytes.length !== 32)
    throw usage(`--key ${text} must be an id, "=" and the 32 bytes of an Ed25519 public key in base64`);
  return [text.slice(0, at), bytes];
}

function forPeople({ ok, keysFrom, state, checked, mismatches }: EnvelopeReport): string {
  const lines = [
    ...checked.map((each) => `fits      ${each}`),
    ...mismatches.map(({ message }) => `MISMATCH  ${message}`),
    '',
    ok ? 'The passport is as it was signed.' : 'Do not rely on this passport.',
  ];
  if (ok && state === 'SUPERSEDED') lines.push('A newer version had taken its place when it was exported.');
  if (ok && keysFrom === 'file')
    lines.push(
      'The keys came with the file, so this does not show who signed. Give the issuer’s key with --key.',
    );
  return lines.join('\n');
}
