import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Tallyman } from '../../src/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { type Cli, cliOn, complaint, openTallyman, ship, work } from './support.ts';

let fresh: FreshDatabase;
let tallyman: Tallyman;
let cli: Cli;

beforeAll(async () => {
  fresh = await freshDatabase();
  tallyman = await openTallyman(fresh.url);
  cli = cliOn(fresh.url);
});

afterAll(async () => {
  await tallyman.close();
  await fresh.drop();
});

const dead = async (): Promise<number> => (await tallyman.jobs.counts()).DEAD_LETTER;

/** Leaves exactly these in the list. */
async function bury(...problems: string[]): Promise<string[]> {
  await tallyman.deadLetters.discardAll({});
  const jobs = await tallyman.enqueueMany(
    ship,
    problems.map((fail, i) => ({ payload: { parcel: `P-${i}`, fail } })),
  );
  await work(tallyman, async () => (await dead()) === problems.length);
  return jobs.map(({ id }) => id);
}

test('list and show', async () => {
  const [first, second] = await bury('the belt is stuck', 'timeout');
  const list = await cli('dead-letters', 'list');
  expect(list.stdout).toMatch(/^ *ID +KIND +QUEUE +TRIES +FAILED +LAST ERROR\n/);
  expect(list.stdout).toMatch(
    new RegExp(`${second} +ship +shipping +1/1 +\\S.* Error: timeout\n.*${first} `),
  );
  const found = JSON.parse((await cli('dead-letters', 'list', '--search', 'TIME', '--json')).stdout);
  expect(found.items).toMatchObject([{ id: second, source: 'job', queue: 'shipping', redrives: 0 }]);
  const page = await cli('dead-letters', 'show', first ?? '');
  expect(page.stdout).toContain('Error: the belt is stuck');
  expect(page.stdout).toContain('"parcel": "P-0"');
  expect(JSON.parse((await cli('dead-letters', 'show', first ?? '', '--json')).stdout).id).toBe(first);
});

test('redrive and discard by id', async () => {
  const [a = '', b = ''] = await bury('x', 'y');
  const redriven = await cli('dead-letters', 'redrive', a, '999999999');
  expect(redriven).toMatchObject({ code: 3, stdout: `dead letter ${a} was redriven\n` });
  expect(redriven.stderr).toContain('there is no dead letter 999999999');
  expect((await tallyman.jobs.get(a))?.status).toBe('QUEUED');
  await tallyman.jobs.cancel(a);
  expect(await cli('dead-letters', 'discard', b)).toMatchObject({
    code: 0,
    stdout: `dead letter ${b} is discarded\n`,
  });
  expect(await cli('dead-letters', 'discard', b)).toMatchObject({ code: 3, stdout: '' });
  expect(await dead()).toBe(0);
});

test('--all takes what the filter matches and nothing else, and only after a yes', async () => {
  await bury('timeout', 'timeout', 'the belt is stuck');
  const unasked = await cli('dead-letters', 'discard', '--all', '--search', 'timeout');
  expect(complaint(unasked)).toContain('this would touch 2 dead letters; add --yes');
  expect(unasked.code).toBe(2);
  expect(await dead()).toBe(3);
  const asked = await cli('dead-letters', 'discard', '--all', '--search', 'timeout', '--yes');
  expect(asked).toMatchObject({ code: 0, stdout: '2 dead letters discarded.\n' });
  expect((await tallyman.deadLetters.list()).items).toMatchObject([
    { lastError: { message: 'the belt is stuck' } },
  ]);
  const redriven = await cli('dead-letters', 'redrive', '--all', '--yes', '--json');
  expect(JSON.parse(redriven.stdout)).toEqual({ redriven: 1 });
  expect(await dead()).toBe(0);
  expect((await cli('dead-letters', 'redrive', '--all')).stdout).toBe('0 dead letters redriven.\n');
});

test.each([
  { args: ['redrive'], says: 'name ids to redrive, or --all' },
  { args: ['discard', '--kind', 'ship'], says: 'add --all to discard everything that matches' },
  { args: ['discard', '7', '--all'], says: 'give ids, or --all with filters, not both' },
  { args: ['redrive', 'seven'], says: '"seven" is not an id' },
  { args: ['show', 'seven'], says: '"seven" is not an id' },
])('dead-letters $args is wrong usage', async ({ args, says }) => {
  const ended = await cli('dead-letters', ...args);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(2);
});
