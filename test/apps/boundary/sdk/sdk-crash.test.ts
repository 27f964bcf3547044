import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { messageId } from '../../../../src/apps/boundary/sdk/message-id.ts';
import type { Database } from '../../../../src/engine/database/database.ts';
import { type Started, start } from '../../../cli/support.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import { freePorts } from '../../../support/services/service.ts';
import { until } from '../../../support/until.ts';
import { boundaryDatabase } from '../support.ts';
import { consumer, cuttingProxy, fact, numbers, plant, producer, scratch } from './scene.ts';

const script = (name: string) => `test/apps/boundary/sdk/${name}.ts`;

/** What the database has, and not what any process believes: keys in the order of their offsets. */
async function stored(database: Database): Promise<{ key: string; offset: string }[]> {
  const { rows } = await database.query<{ key: string; offset: string }>(
    'select key, e."offset"::text as "offset" from tallyman.log_entries e order by e."offset"',
  );
  return rows;
}

async function count(database: Database): Promise<number> {
  const { rows } = await database.query<{ n: number }>('select count(*)::int as n from tallyman.log_entries');
  return rows[0]?.n ?? 0;
}

async function killed({ child, ended }: Started): Promise<string> {
  child.kill('SIGKILL');
  return (await ended).stdout;
}

const lastOf = (output: string, word: string): number =>
  Number([...output.matchAll(new RegExp(`${word} (\\d+)\n`, 'g'))].at(-1)?.[1] ?? 0);

test('BND-14: a producer that is killed at any moment: every fact that the outbox took is stored once, in order', async () => {
  const random = seededRandom();
  const { port, outbox, database, objects } = await plant();
  const proxy = await cuttingProxy(port);
  const { url } = proxy;
  const last = 10_000;
  let accepted = 0;
  let killedEarly = 0;
  for (const round of numbers(8)) {
    const run = start(script('producer-process'), [
      JSON.stringify({ url, outbox, first: accepted + 1, last }),
    ]);
    // In the middle of its work, anywhere: while it opens the outbox, appends, sends, or settles.
    const moment =
      round % 4 === 1
        ? sleep(random.between(50, 800))
        : run.said('accepted').then(() => sleep(random.between(0, 150)));
    await Promise.race([moment.catch(() => {}), run.ended]);
    // Every other time with a call under way that the node has not got, or whose answer is lost.
    proxy.isFrozen = round % 2 === 0;
    proxy.losesAnswers = round % 4 === 3;
    if (proxy.isFrozen || proxy.losesAnswers) await sleep(random.between(50, 150));
    const output = await killed(run);
    accepted = Math.max(accepted, lastOf(output, 'accepted'));
    proxy.isFrozen = false;
    proxy.losesAnswers = false;
    if (output.includes('flushed')) break;
    killedEarly += Number(accepted < last);
  }
  const rest = start(script('producer-process'), [
    JSON.stringify({ url, outbox, first: accepted + 1, last }),
  ]);
  const { stdout, stderr, code } = await rest.ended;
  expect([code, stderr.replace(/.*SQLite is an experimental.*\n.*\n/, '')]).toEqual([0, '']);
  expect(stdout).toContain('"parked":0');
  expect(killedEarly).toBeGreaterThan(1);
  expect(await stored(database)).toEqual(
    numbers(last).map((n) => ({ key: messageId(`reading:${n}`), offset: String(n) })),
  );
  for (const n of numbers(last).filter((each) => each % 400 === 0)) {
    const { size } = await objects.info({ tenantId: 'default', bucket: 'files', key: `f${n}` });
    expect(size).toBe(`file of ${n} `.repeat(2000).length);
  }
  expect(await readdir(`${outbox}-objects`)).toEqual([]);
}, 300_000);

test('BND-14: an outbox has one process at a time, and is free when that is killed', async () => {
  const { url, outbox, ids } = await plant();
  const run = start(script('producer-process'), [JSON.stringify({ url, outbox, first: 1, last: 100_000 })]);
  await run.said('accepted');
  await expect(producer({ url, outbox })).rejects.toMatchObject({ reason: 'outbox_in_use' });
  const accepted = lastOf(await killed(run), 'accepted');
  const to = await producer({ url, outbox });
  await to.flush();
  expect((await ids()).length).toBeGreaterThanOrEqual(accepted);
});

test('BND-14: a node that is killed while facts come: every fact that the outbox took is stored once, in order', async () => {
  const random = seededRandom();
  const { url: databaseUrl, database } = await boundaryDatabase();
  const folder = await scratch();
  const [port = 0] = await freePorts(1);
  const serve = async (): Promise<Started> => {
    const node = start(script('node-process'), [JSON.stringify({ databaseUrl, folder, port })]);
    await node.said('serves on');
    return node;
  };
  let node = await serve();
  /** Two producers at once, each with an outbox of its own. */
  const both = await Promise.all(
    ['a', 'b'].map(async (name) => ({
      name,
      accepted: [] as string[],
      to: await producer({
        url: `http://127.0.0.1:${port}`,
        outbox: join(folder, `${name}.db`),
        timeoutMs: 5000,
      }),
    })),
  );
  const append = async ({ name, to, accepted }: (typeof both)[number]): Promise<void> => {
    const some = numbers(1 + random.whole(40), accepted.length + 1).map((n) => `${name}${n}`);
    await Promise.all(some.map((id) => to.append(fact(id))));
    accepted.push(...some);
  };
  for (const _ of numbers(5)) {
    let isOver = false;
    const appending = both.map(async (each) => {
      while (!isOver) await append(each);
    });
    const before = await count(database);
    await until('facts arrive', async () => (await count(database)) > before);
    await sleep(random.between(0, 100));
    await killed(node);
    isOver = true;
    await Promise.all(appending);
    await Promise.all(both.map(append));
    node = await serve();
  }
  for (const { to } of both) {
    await to.flush();
    expect(to.state()).toMatchObject({ bytes: 0, parked: 0 });
  }
  const entries = await stored(database);
  expect(entries.map(({ offset }) => offset)).toEqual(numbers(entries.length).map(String));
  for (const { name, accepted } of both)
    expect(entries.map(({ key }) => key).filter((key) => key.startsWith(name))).toEqual(accepted);
}, 300_000);

test('BND-14: a consumer that is killed in the middle of its batches: nothing is missed, and the order is kept', async () => {
  const random = seededRandom();
  const { url, outbox, store } = await plant();
  const to = await producer({ url, outbox });
  const sent = 600;
  await Promise.all(numbers(sent).map((n) => to.append(fact(`m${n}`, n))));
  await to.flush();
  const cursor = async () =>
    (await store.consumers({ tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' }))[0]
      ?.cursor ?? 0;
  let reached = 0;
  for (let kills = 0; kills < 6; kills += 1) {
    const run = start(script('consumer-process'), [JSON.stringify({ url })]);
    await run.said(/handled \d+\n/);
    await sleep(random.between(0, 100));
    const output = await killed(run);
    const handled = [...output.matchAll(/handled (\d+)\n/g)].map(([, offset]) => Number(offset));
    // Each run goes on where the last confirmation was, and leaves nothing out from there.
    expect(handled[0]).toBeLessThanOrEqual(reached + 1);
    expect(handled).toEqual(numbers(handled.length, handled[0]));
    expect(output).not.toContain('gap');
    reached = Math.max(reached, handled.at(-1) ?? 0);
    // Nothing is confirmed that was not handled.
    expect(await cursor()).toBeLessThanOrEqual(reached);
  }
  const seen: number[] = [];
  consumer({ url, instance: 'the only one', handler: ({ offset }) => void seen.push(offset) }).start();
  await until('all are confirmed', async () => (await cursor()) === sent);
  expect(seen[0]).toBeLessThanOrEqual(reached + 1);
  expect(seen).toEqual(numbers(seen.length, seen[0]));
  expect(seen.at(-1)).toBe(sent);
}, 300_000);
