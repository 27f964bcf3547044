import { spawn } from 'node:child_process';
import type { EventEmitter } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildProgram } from '../../src/cli/program.ts';
import { apps } from '../../src/host/apps.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { cliOn, complaint, inRoot, node, openTallyman, scratch, ship, start } from './support.ts';

const cli = cliOn('postgres://127.0.0.1:1/never-asked');

test('--version and --help go to stdout and need no database', async () => {
  const { version } = JSON.parse(await readFile(inRoot('package.json'), 'utf8'));
  expect(await cli('--version')).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: '' });
  const help = await cli('--help');
  expect(help).toMatchObject({ code: 0, stderr: '' });
  expect(help.stdout).toContain('Exit codes:');
  for (const line of help.stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
});

test('every command has help with an example', async () => {
  type Program = ReturnType<typeof buildProgram>;
  const walk = (command: Program, path: string[]): { path: string; command: Program }[] =>
    command.commands.length === 0
      ? [{ path: path.join(' '), command }]
      : command.commands.flatMap((sub) => walk(sub, [...path, sub.name()]));
  const found = walk(buildProgram(apps), []);
  expect(found.map(({ path }) => path)).toEqual(
    expect.arrayContaining([
      'jobs list',
      'dead-letters redrive',
      'lanes unblock',
      'queues limit',
      'worker',
      'migrate',
    ]),
  );
  for (const { path, command } of found) {
    let help = '';
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
    expect(help).toContain(`Examples:\n  $ tallyman ${path}`);
  }
  const { code, stdout } = await cli('iot', 'devices', 'add', '--help');
  expect(code).toBe(0);
  expect(stdout).toContain('Examples:\n  $ tallyman iot devices add');
});

test.each([
  { args: ['jbos'], says: '(Did you mean jobs?)' },
  { args: ['jobs', 'lst'], says: '(Did you mean list?)' },
  { args: ['jobs', 'list', '--jsn'], says: '(Did you mean --json?)' },
  { args: ['jobs'], says: 'Usage: tallyman jobs' },
  { args: [], says: 'Usage: tallyman' },
])('$args: wrong usage', async ({ args, says }) => {
  const ended = await cli(...args);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(2);
});

test.each([
  { args: ['jobs', 'list', '--kind', 'a', '--kind', 'b'], says: /option '-k, --kind <name>' is given twice/ },
  { args: ['jobs', 'list', '-n', '1', '--limit', '2'], says: /-n, --limit <count>' is given twice/ },
  { args: ['serve', '--port', '1', '--port', '2'], says: /--port <number>' is given twice/ },
  { args: ['--config', 'a', '--config', 'b', 'jobs', 'list'], says: /--config <file>' is given twice/ },
  { args: ['serve', '--only', 'api', '--only', 'apu'], says: /there is no part "apu"/ },
])('$args: an option with one value is not given twice', async ({ args, says }) => {
  const ended = await cli(...args);
  expect(complaint(ended)).toMatch(says);
  expect(ended.code).toBe(2);
});

test('every option with a value either takes several, or refuses the second', () => {
  const walk = (command: ReturnType<typeof buildProgram>): ReturnType<typeof buildProgram>[] => [
    command,
    ...command.commands.flatMap(walk),
  ];
  const accepts: string[] = [];
  for (const command of walk(buildProgram(apps)))
    for (const option of command.options.filter(({ required, optional }) => required || optional)) {
      // One listener takes the value; the other refuses a second one.
      const listeners = (command as unknown as EventEmitter).listenerCount(`option:${option.name()}`);
      if (listeners < 2 && !option.variadic) accepts.push(`${command.name()} ${option.long}`);
    }
  expect(accepts.sort()).toEqual(['append --label', 'serve --only', 'verify --key', 'worker --queues']);
});

describe('config', () => {
  test('docs/configuration.md is what `config --docs` prints', async () => {
    const { stdout } = await cli('config', '--docs');
    expect(stdout).toBe(await readFile(inRoot('docs/configuration.md'), 'utf8'));
  });

  test('values come with their source, and no secret is shown', async () => {
    const folder = await scratch();
    await writeFile(join(folder, 'tallyman.config.json'), '{"jobs": {"leaseMs": 90000}}');
    const env = {
      BPC_JOBS_MAX_ATTEMPTS_DEFAULT: '9',
      TALLYMAN_REDIS_URL: 'redis://:hidden@redis.local:6379/2?password=hidden',
      TALLYMAN_NATS_SERVERS: 'nats://hidden@a:4222,nats://b:4222',
    };
    const here = cliOn('postgres://user:hidden@db.local/plant', { cwd: folder, env });
    const { stdout, code } = await here('config');
    expect(code).toBe(0);
    expect(stdout).toMatch(/jobs\.leaseMs +90000 +the configuration file/);
    expect(stdout).toMatch(/jobs\.maxAttempts +9 +BPC_JOBS_MAX_ATTEMPTS_DEFAULT/);
    expect(stdout).toMatch(/jobs\.renewMs +30000 +default/);
    expect(stdout).toMatch(/database\.url +postgres:\/\/…@db\.local\/plant +DATABASE_URL/);
    expect(stdout).not.toContain('hidden');
    const { items } = JSON.parse((await here('config', '--json')).stdout);
    expect(items).toContainEqual({ key: 'jobs.leaseMs', value: 90000, source: 'the configuration file' });
    expect(items).toContainEqual({
      key: 'wakeups.nats.servers',
      value: '…',
      source: 'TALLYMAN_NATS_SERVERS',
    });
  });

  test('a wrong value and an unknown key are named, all at once', async () => {
    const folder = await scratch();
    const file = join(folder, 'plant.json');
    await writeFile(file, '{"jobs": {"leaseMS": 1, "concurrency": "many"}}');
    const ended = await cli('--config', file, 'jobs', 'list');
    expect(complaint(ended)).toContain('jobs.leaseMS is not a key; did you mean jobs.leaseMs?');
    expect(ended.stderr).toContain('jobs.concurrency (from the configuration file)');
    expect(ended.code).toBe(2);
    expect((await cli('--config', join(folder, 'gone.json'), 'config')).code).toBe(2);
  });

  test('TALLYMAN_DEBUG=1 shows where an error came from', async () => {
    const { stderr, code } = await cliOn('mysql://x', { env: { TALLYMAN_DEBUG: '1' } })('jobs', 'list');
    expect(stderr).toMatch(/^\s+at /m);
    expect(code).toBe(2);
  });
});

describe('a reader that has had enough', () => {
  let fresh: FreshDatabase;
  beforeAll(async () => {
    fresh = await freshDatabase();
    const tallyman = await openTallyman(fresh.url);
    await tallyman.enqueueMany(
      ship,
      Array.from({ length: 2000 }, (_, i) => ({ payload: { parcel: `P-${i}`.padEnd(200, '-') } })),
    );
    await tallyman.close();
  });
  afterAll(() => fresh.drop());

  test('| head is no error', async () => {
    const command = `"${node}" "${inRoot('src/cli/main.ts')}" jobs list -n 2000 --json | head -n 2; echo "code \${PIPESTATUS[0]}"`;
    const shell = spawn('bash', ['-c', command], {
      env: { PATH: process.env.PATH ?? '', DATABASE_URL: fresh.url },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    shell.stdout.on('data', (chunk) => (stdout += chunk));
    shell.stderr.on('data', (chunk) => (stderr += chunk));
    await new Promise((done) => shell.on('close', done));
    expect(stderr).toBe('');
    expect(stdout).toBe('{\n  "items": [\ncode 0\n');
  });

  test('all of a long answer arrives in a pipe', async () => {
    const { ended } = start('src/cli/main.ts', ['jobs', 'list', '-n', '2000', '--json'], {
      env: { DATABASE_URL: fresh.url },
    });
    expect(JSON.parse((await ended).stdout).items).toHaveLength(2000);
  });
});
