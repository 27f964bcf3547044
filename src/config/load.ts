import { readFileSync } from 'node:fs';
import { messageOf, TallymanError } from '../engine/errors.ts';
import type { ConfigKeys, Key } from './key.ts';
import type { Config } from './keys.ts';

/** Finds settings that do not fit together; returns a message for each problem. */
export type Contradictions = (config: Config) => readonly string[];

/** All keys, and the rules between them. */
export interface ConfigSchema {
  readonly keys: ConfigKeys;
  readonly contradictions: readonly Contradictions[];
}

export interface LoadOptions {
  /** Default `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Default: TALLYMAN_CONFIG, else `tallyman.config.json` where there is one. */
  readonly file?: string;
}

const defaultFile = 'tallyman.config.json';

/**
 * Reads file and environment, and records where each value came from. Every problem is reported with its key, the value,
 * and what was expected.
 */
export function readConfig(
  { keys, contradictions }: ConfigSchema,
  options: LoadOptions = {},
): { config: Config; sources: Readonly<Record<string, string>> } {
  const env = options.env ?? process.env;
  const named = options.file ?? env.TALLYMAN_CONFIG;
  const fromFile = flatten(readFile(named ?? defaultFile, named !== undefined), keys);
  const problems = [...fromFile.keys()]
    .filter((name) => !(name in keys))
    .map((name) => `${name} is not a key${suggestion(name, keys)}`);
  const config: Record<string, unknown> = {};
  const sources: Record<string, string> = {};
  for (const [name, key] of Object.entries(keys)) {
    const found = find(name, key, env, fromFile);
    sources[name] = found.source;
    const result = key.schema.safeParse(found.value);
    if (result.success) config[name] = result.data;
    else
      problems.push(
        `${name} (from ${found.source}): ${result.error.issues[0]?.message ?? 'is not valid'}; got ${
          key.secret ? 'a value that is not shown' : JSON.stringify(found.value)
        }`,
      );
  }
  const complete = config as Config;
  if (problems.length === 0) problems.push(...contradictions.flatMap((find) => find(complete)));
  if (problems.length > 0)
    throw new TallymanError(
      'BAD_CONFIG',
      `The configuration is not valid:\n${problems.map((p) => `  ${p}`).join('\n')}`,
      {
        details: { problems },
      },
    );
  return { config: complete, sources };
}

export const coreContradictions: Contradictions = (config) => {
  const problems: string[] = [];
  if (config['jobs.renewMs'] >= config['jobs.leaseMs'])
    problems.push(
      `jobs.renewMs (${config['jobs.renewMs']}) must be below jobs.leaseMs (${config['jobs.leaseMs']}): a lease would end before it is renewed`,
    );
  if (config['wakeups.rabbitmq.enabled'] && config['wakeups.rabbitmq.url'] === null)
    problems.push('wakeups.rabbitmq.enabled is true, but wakeups.rabbitmq.url is not set');
  return problems;
};

function find(
  name: string,
  key: Key<unknown>,
  env: Readonly<Record<string, string | undefined>>,
  file: ReadonlyMap<string, unknown>,
): { value: unknown; source: string } {
  for (const variable of key.env) {
    const text = env[variable];
    if (text !== undefined && text !== '') return { value: fromText(text, key, variable), source: variable };
  }
  if (file.has(name)) return { value: file.get(name), source: 'the configuration file' };
  return { value: key.fallback, source: 'its default' };
}

/** Parses the text of an environment variable by the type of its key. */
function fromText(text: string, key: Key<unknown>, variable: string): unknown {
  if (typeof key.fallback === 'number') {
    const number = Number(text);
    return Number.isNaN(number) ? text : number * (key.scale?.[variable] ?? 1);
  }
  if (typeof key.fallback === 'boolean' || key.schema.safeParse(true).success) {
    if (/^(true|1|yes|on)$/i.test(text)) return true;
    if (/^(false|0|no|off)$/i.test(text)) return false;
  }
  return text;
}

function readFile(path: string, required: boolean): unknown {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (!required && (error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw new TallymanError('BAD_CONFIG', `Cannot read the configuration file ${path}: ${messageOf(error)}`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TallymanError('BAD_CONFIG', `The configuration file ${path} is not JSON: ${messageOf(error)}`);
  }
}

/** `{jobs: {leaseMs: 1}}` as `jobs.leaseMs`. */
function flatten(value: unknown, keys: ConfigKeys, prefix = ''): Map<string, unknown> {
  if (prefix in keys || typeof value !== 'object' || value === null || Array.isArray(value))
    return prefix ? new Map([[prefix, value]]) : new Map();
  return new Map(
    Object.entries(value).flatMap(([name, inner]) => [
      ...flatten(inner, keys, prefix ? `${prefix}.${name}` : name),
    ]),
  );
}

function suggestion(name: string, keys: ConfigKeys): string {
  const close = Object.keys(keys)
    .map((known) => ({ known, distance: distance(name.toLowerCase(), known.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance)[0];
  return close && close.distance <= 4 ? `; did you mean ${close.known}?` : '';
}

/** Levenshtein. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1)
      next[j] = Math.min(
        (row[j] ?? 0) + 1,
        (next[j - 1] ?? 0) + 1,
        (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1),
      );
    row = next;
  }
  return row[b.length] ?? 0;
}
