import { type Command, InvalidArgumentError } from 'commander';
import { given } from '../../../given.ts';
import { usage } from '../../../host/cli/exit.ts';
import { wholeNumber } from '../../../host/cli/options.ts';
import { type EndpointSettings, longRetryDelays } from '../endpoints.ts';
import type { Filter } from '../filter.ts';

export interface SettingOptions {
  readonly event?: string[];
  readonly description?: string;
  readonly ordered?: boolean;
  readonly timeout?: number;
  readonly attempts?: number;
  readonly retryDelays?: number[];
  readonly longRetries?: boolean;
  /** False: `--no-filter`. */
  readonly filter?: Filter | false;
  readonly header?: string[] | false;
  readonly ed25519?: boolean;
}

export interface SecretOption {
  readonly secret?: string;
}

/** The settings that `add` and `change` share. */
export const withSettings = (command: Command): Command =>
  command
    .option('-e, --event <type...>', 'event types such as pallet.moved or pallet.* (default: all)')
    .option('-d, --description <text>', 'what it is for')
    .option('--ordered', 'events of one aggregate arrive one after another, in order')
    .option('--timeout <ms>', 'for a whole exchange (default: 30000)', wholeNumber(100, 300_000))
    .option('--attempts <count>', 'before a delivery becomes a dead letter (default: 5)', wholeNumber(1, 100))
    .option('--retry-delays <seconds>', 'waits between attempts, such as 5,300,1800', delays)
    .option('--long-retries', `the same as --retry-delays ${longRetryDelays.join(',')}`)
    .option(
      '--filter <json>',
      'conditions on the payload, all of which must hold; see docs/webhooks.md',
      filter,
    )
    .option('--header <name: value...>', 'headers of your own; their values are not shown again')
    .option('--ed25519', 'sign with a key pair, too; the receiver needs the public key only');

export function settingsFrom(options: SettingOptions): Partial<EndpointSettings> {
  return given({
    eventTypes: options.event,
    description: options.description,
    ordered: options.ordered,
    timeoutMs: options.timeout,
    maxAttempts: options.attempts,
    retryDelays: options.longRetries ? longRetryDelays : options.retryDelays,
    filter: options.filter === false ? [] : options.filter,
    headers: options.header === false ? {} : options.header && headersFrom(options.header),
    ed25519: options.ed25519,
  });
}

/** `-` keeps a secret out of the list of processes and out of the history of the shell. */
export async function secretFrom({ secret }: SecretOption): Promise<string | undefined> {
  if (secret !== '-') return secret;
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}

function headersFrom(lines: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const [name = '', ...rest] = line.split(':');
      if (rest.length === 0)
        throw usage(`expected a header such as "Authorization: Bearer 123", got "${name}"`);
      return [name.trim(), rest.join(':').trim()];
    }),
  );
}

function filter(text: string): Filter {
  try {
    return JSON.parse(text) as Filter;
  } catch {
    throw new InvalidArgumentError(`Expected JSON such as '[{"path": "to.zone", "equals": "dock-3"}]'.`);
  }
}

function delays(text: string): number[] {
  const seconds = text.split(',').map((part) => part.trim());
  if (!seconds.every((part) => /^[1-9]\d{0,5}$/.test(part)))
    throw new InvalidArgumentError('Expected seconds such as 5,300,1800.');
  return seconds.map(Number);
}
