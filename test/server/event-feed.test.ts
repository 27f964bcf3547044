import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { EventFeed } from '../../src/server/event-feed.ts';
import { type EventScene, eventScene, moved } from '../events/support.ts';
import { until } from '../support/until.ts';

/*
 * The live stream is notified of commits. To show that no poll is needed, it takes longer than the test.
 */
const never = 600_000;

async function feed(scene: EventScene) {
  const fed = new EventFeed(scene.tallyman.database, { pollMs: never });
  const http = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.on('close', () => fed.remove(response));
    fed.add('default', response, request.headers['last-event-id'] as string | undefined);
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    await fed.stop();
    http.closeAllConnections();
    http.close();
  });
  const { port } = http.address() as AddressInfo;
  return async (headers: Record<string, string> = {}) => {
    const leaving = new AbortController();
    const { body } = await fetch(`http://127.0.0.1:${port}/`, { headers, signal: leaving.signal });
    let text = '';
    void body
      ?.pipeThrough(new TextDecoderStream())
      .pipeTo(
        new WritableStream({
          write: (chunk) => {
            text += chunk;
          },
        }),
      )
      .catch(() => {});
    return { heard: () => [...text.matchAll(/P-\d+/g)].map(([name]) => name), leave: () => leaving.abort() };
  };
}

const bells = async ({ rows }: EventScene): Promise<number> =>
  (
    await rows(`select 1 from pg_stat_activity where application_name like 'tallyman events%'
        and datname = current_database()`)
  ).length;

const isWaiting = async ({ rows }: EventScene): Promise<boolean> =>
  (
    await rows(
      `select 1 from pg_locks where locktype = 'advisory' and classid::bigint >> 16 = 29798 and granted
          and database = (select oid from pg_database where datname = current_database())`,
    )
  ).length > 0;

test('SSE: a commit reaches every reader without a poll, one after another and many at once', async () => {
  const scene = await eventScene();
  const connect = await feed(scene);
  const readers = [await connect(), await connect()];
  await until('it waits to be notified', () => isWaiting(scene));
  await scene.events.emit(moved('P-1'));
  await until('both have it', () => readers.every(({ heard }) => heard().includes('P-1')));
  for (let n = 2; n <= 40; n += 1) await scene.events.emit(moved(`P-${n}`));
  await until('both have all', () => readers.every(({ heard }) => new Set(heard()).size === 40));
  const expected = Array.from({ length: 40 }, (_, i) => `P-${i + 1}`);
  for (const { heard } of readers) expect([...new Set(heard())]).toEqual(expected);
});

test('SSE: the connection that is notified is closed with the last reader, and opened again for the next', async () => {
  const scene = await eventScene();
  const connect = await feed(scene);
  const first = await connect();
  await until('it waits to be notified', () => isWaiting(scene));
  expect(await bells(scene)).toBe(1);
  first.leave();
  await until('nobody is notified', async () => (await bells(scene)) === 0);
  const second = await connect();
  await until('it waits again', () => isWaiting(scene));
  await scene.events.emit(moved('P-1'));
  await until('the second has it', () => second.heard().includes('P-1'));
  expect(first.heard()).toEqual([]);
});
