import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { visit } from '../../src/runtime/embedded.ts';
import { type Ended, scratch, start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';

async function database(): Promise<Readonly<Record<string, string>>> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  return { DATABASE_URL: url };
}

const figure = (text: string, name: string): number =>
  Number(new RegExp(`^ {2}${name} +([\\d,]+)`, 'm').exec(text)?.[1]?.replaceAll(',', ''));

function expectBalanced({ code, stdout }: Ended): void {
  expect(stdout).toContain('The books balance.');
  expect(code).toBe(0);
  for (const name of ['order violations', 'twice', 'lost'])
    expect({ name, n: figure(stdout, name) }).toEqual({ name, n: 0 });
  const accounted = ['done', 'waiting', 'dead letters', 'ended otherwise'].map((name) =>
    figure(stdout, name),
  );
  expect(accounted.reduce((sum, n) => sum + n, 0)).toBe(figure(stdout, 'enqueued'));
}

test('--for 5s ends by itself with balanced books, some trouble seen and nothing waiting', async () => {
  const env = await database();
  const ended = await start(
    'src/demo/main.ts',
    ['--headless', '--for', '5s', '--seed', '7', '--rate', '100'],
    { env },
  ).ended;
  expectBalanced(ended);
  expect(figure(ended.stdout, 'enqueued')).toBeGreaterThan(200);
  expect(figure(ended.stdout, 'dead letters')).toBeGreaterThan(0);
  expect(figure(ended.stdout, 'waiting')).toBe(0);
  expect(ended.stdout).toMatch(/^ {2}database +PostgreSQL at postgres/m);
  expect(ended.stdout).toMatch(/^enqueued \d+ · done \d+ · .* order violations 0 · twice 0 · lost 0$/m);
});

test('killed in the middle and started again, it goes on and the books still balance', async () => {
  const env = await database();
  const first = start('src/demo/main.ts', ['--rate', '400', '--seed', '1'], { env });
  await first.said(/done [1-9]/);
  await sleep(700);
  first.child.kill('SIGKILL');
  expect((await first.ended).signal).toBe('SIGKILL');
  const again = await start('src/demo/main.ts', ['--for', '6s', '--rate', '50', '--seed', '2'], { env })
    .ended;
  const [, done, left] = /before +([\d,]+) done by earlier runs, ([\d,]+) left/.exec(again.stdout) ?? [];
  expect(Number(done?.replace(',', ''))).toBeGreaterThan(0);
  expect(Number(left)).toBeGreaterThan(0);
  expectBalanced(again);
  // Also what the killed one held: its lease ran out meanwhile.
  expect(figure(again.stdout, 'waiting')).toBe(0);
});

test('Ctrl-C ends it within seconds, with exit code 0, and its server with it', async () => {
  const cwd = await scratch();
  const demo = start('src/demo/main.ts', [], { cwd });
  await demo.said('· done ');
  const list = await start('src/cli/main.ts', ['jobs', 'list', '--json'], { cwd }).ended;
  expect(JSON.parse(list.stdout).items.length).toBeGreaterThan(0);
  expect(list.stderr).toBe('');
  const began = performance.now();
  demo.child.kill('SIGINT');
  const ended = await demo.ended;
  expect(performance.now() - began).toBeLessThan(10_000);
  expectBalanced(ended);
  expect(ended.stdout).toContain('Stopped after');
  expect(ended.stdout).toMatch(/embedded PostgreSQL on 127\.0\.0\.1:\d+, data in \.tallyman\/postgres/);
  expect(ended.stderr).toBe('');
  expect(await visit(join(cwd, '.tallyman/postgres'))).toBeUndefined();
});

test.each([
  { args: ['--for', 'ever'], says: 'Expected a time such as' },
  { args: ['--rate', '0'], says: 'Expected a whole number' },
  { args: ['--sed', '7'], says: 'Did you mean --seed' },
])('$args is wrong usage', async ({ args, says }) => {
  const { code, stderr } = await start('src/demo/main.ts', args).ended;
  expect(stderr).toContain(says);
  expect(code).toBe(2);
});

test('--help', async () => {
  const { code, stdout } = await start('src/demo/main.ts', ['--help']).ended;
  expect(code).toBe(0);
  for (const flag of ['--headless', '--for', '--rate', '--seed']) expect(stdout).toContain(flag);
});
