import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { Database } from '../../src/engine/database/database.ts';
import { exitCodes } from '../../src/host/cli/exit.ts';
import { visit } from '../../src/host/process/embedded.ts';
import { broker } from '../apps/iot/mqtt/support.ts';
import { type Ended, type Started, scratch, start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';

async function demo(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  cwd?: string,
): Promise<Started> {
  return start('src/demo/main.ts', args, {
    cwd: cwd ?? (await scratch()),
    env: { TALLYMAN_PORT: '0', ...env },
  });
}

async function freshDatabase(): Promise<{ readonly DATABASE_URL: string }> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  return { DATABASE_URL: url };
}

const figure = (text: string, name: string): number =>
  Number(new RegExp(`^ {2}${name} +([\\d,]+)`, 'm').exec(text)?.[1]?.replaceAll(',', ''));

/**
 * Readers send damaged messages on purpose; each becomes a dead letter at its only attempt, and the log says so. If the processor
 * is killed during that attempt, the log says that instead.
 */
const expected =
  /"code":"UNREADABLE_MESSAGE"|a job killed its worker at its last attempt and is a dead letter/;
const unexpected = (stderr: string): string[] =>
  stderr.split('\n').filter((line) => line !== '' && !expected.test(line));

function expectBalanced({ code, stdout, stderr }: Ended): void {
  expect(unexpected(stderr)).toEqual([]);
  expect(stdout).toContain('The books balance.');
  expect(code).toBe(0);
  for (const name of ['lost', 'twice', 'baskets astray'])
    expect({ name, n: figure(stdout, name) }).toEqual({ name, n: 0 });
}

test('--for ends by itself with balanced books; nothing is under way, and what was damaged is a dead letter', async () => {
  const cwd = await scratch();
  const env = await freshDatabase();
  const args = ['--headless', '--for', '6s', '--seed', '7', '--rate', '300'];
  const ended = await (await demo(args, env, cwd)).ended;
  expectBalanced(ended);
  const { stdout } = ended;
  expect(figure(stdout, 'reads sent')).toBeGreaterThan(500);
  expect(figure(stdout, 'duplicates dropped')).toBeGreaterThan(0);
  expect(figure(stdout, 'in flight')).toBe(0);
  expect(figure(stdout, 'dead letters')).toBeGreaterThan(0);
  expect(figure(stdout, 'movements')).toBeGreaterThan(figure(stdout, 'baskets'));
  expect(stdout).toMatch(/^ {2}database +PostgreSQL at postgres/m);
  expect(stdout).toMatch(/^ {2}broker +.*mosquitto on 127\.0\.0\.1:\d+, data in \.tallyman\/mosquitto$/m);
  expect(stdout).toMatch(
    /^sent [\d,]+ · counted [\d,]+ · duplicates dropped \d+ · in flight \d+ · .* lost 0 · twice 0 · the books balance$/m,
  );
  // A second start goes on with the same data, and its books count from its own start.
  const again = await (await demo(['--for', '2s', '--seed', '7'], env, cwd)).ended;
  expectBalanced(again);
  expect(again.stdout).toMatch(/before +[\d,]+ reads of \d+ baskets, by 1 earlier run/);
  expect(figure(again.stdout, 'counted')).toBeLessThan(figure(stdout, 'counted'));
});

test('MQTT-5: --chaos kills the processor again and again, and the books still balance', async () => {
  const args = ['--for', '12s', '--seed', '3', '--rate', '400', '--chaos'];
  const ended = await (await demo(args, await freshDatabase())).ended;
  expectBalanced(ended);
  expect(figure(ended.stdout, 'processor killed')).toBeGreaterThan(1);
  expect(figure(ended.stdout, 'in flight')).toBe(0);
});

test.each([
  ['a movement that vanishes', 'delete from rfid.movements where id = (select min(id) from rfid.movements)'],
  [
    'a read that is counted twice',
    `insert into rfid.tag_read_processings (content_hash, processor_type, event_timestamp, epc_hex, device_id, tenant_id)
     select sha256('another'), processor_type, event_timestamp, epc_hex, device_id, tenant_id
       from rfid.tag_read_processings order by id limit 1`,
  ],
])('%s: the books do not balance, and the exit code says so', async (_, sql) => {
  const env = await freshDatabase();
  // Long enough for the change to come before the end on a busy machine, too.
  const running = await demo(['--for', '8s', '--seed', '7'], env);
  await running.said(/counted [1-9]/);
  const database = await Database.connect({ url: env.DATABASE_URL, poolSize: 1 });
  await database.query(sql);
  await database.close();
  const { code, stdout } = await running.ended;
  expect(stdout).toContain('THE BOOKS DO NOT BALANCE');
  expect(code).toBe(1);
});

test('killed in the middle and started again, it takes in what was left and balances', async () => {
  const cwd = await scratch();
  const env = await freshDatabase();
  const first = await demo(['--rate', '400', '--seed', '1'], env, cwd);
  await first.said(/counted [1-9]/);
  await sleep(300);
  first.child.kill('SIGKILL');
  expect((await first.ended).signal).toBe('SIGKILL');
  // The broker that it left behind holds the messages; the next one finds it.
  const again = await (await demo(['--for', '3s', '--seed', '2'], env, cwd)).ended;
  expectBalanced(again);
  const database = await Database.connect({ url: env.DATABASE_URL, poolSize: 1 });
  const { rows } = await database.query<{ counted: number; different: number }>(
    `select (select count(*) from rfid.tag_read_processings)::integer as counted,
            (select count(distinct (device_id, epc_hex, event_timestamp)) from iot.tag_reads)::integer as different`,
  );
  await database.close();
  expect(rows[0]?.counted).toBe(rows[0]?.different);
});

test('Ctrl-C ends it within seconds, with exit code 0, and its servers with it; the API answers meanwhile', async () => {
  const cwd = await scratch();
  const running = await demo([], {}, cwd);
  const url = await running.said(/^ {2}api +(http:\S+)\/v1,/m);
  await running.said(/counted [1-9]/);
  expect((await fetch(`${url}/v1/health/ready`)).status).toBe(200);
  const tag = await running.said(/rfid baskets show (\w+)/);
  const basket = start('src/cli/main.ts', ['rfid', 'baskets', 'show', tag], { cwd });
  // It may not have come to a door yet: then there is no such basket.
  expect([exitCodes.ok, exitCodes.notFound]).toContain((await basket.ended).code);
  const port = await running.said(/mosquitto on 127\.0\.0\.1:(\d+)/);
  running.child.kill('SIGINT');
  const ended = await running.ended;
  expectBalanced(ended);
  expect(ended.stdout).toContain('Stopped after');
  expect(ended.stdout).toMatch(/embedded PostgreSQL on 127\.0\.0\.1:\d+, data in \.tallyman\/postgres/);
  expect(await visit(join(cwd, '.tallyman/postgres'))).toBeUndefined();
  await expect(fetch(`http://127.0.0.1:${port}`)).rejects.toThrow();
});

test('MQTT_URL names the broker', async () => {
  const mosquitto = await broker();
  const env = { ...(await freshDatabase()), MQTT_URL: mosquitto.url };
  const ended = await (await demo(['--for', '2s', '--seed', '7'], env)).ended;
  expectBalanced(ended);
  expect(ended.stdout).toContain(`MQTT_URL, ${mosquitto.url}`);
});

test.each([
  { url: 'mqtt://127.0.0.1:1', says: 'The MQTT broker at mqtt://127.0.0.1:1 cannot be used', exit: 1 },
  { url: 'http://broker', says: 'expected mqtt://host:1883', exit: 2 },
])('MQTT_URL=$url: one message, no stack trace', async ({ url, says, exit }) => {
  const { code, stderr } = await (await demo(['--for', '1s'], { ...(await freshDatabase()), MQTT_URL: url }))
    .ended;
  expect(stderr).toContain(says);
  expect(stderr).not.toMatch(/^\s+at /m);
  expect(code).toBe(exit);
});

test.each([
  { args: ['--for', 'ever'], says: 'Expected a time such as' },
  { args: ['--rate', '0'], says: 'Expected a whole number' },
  { args: ['--sed', '7'], says: 'Did you mean --seed' },
])('$args is wrong usage', async ({ args, says }) => {
  const { code, stderr } = await (await demo(args)).ended;
  expect(stderr).toContain(says);
  expect(code).toBe(2);
});

test('--help', async () => {
  const { code, stdout } = await (await demo(['--help'])).ended;
  expect(code).toBe(0);
  for (const flag of ['--headless', '--for', '--rate', '--seed', '--chaos', '--doors'])
    expect(stdout).toContain(flag);
});
