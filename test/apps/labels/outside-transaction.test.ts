import { availableParallelism } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { images } from '../../../src/apps/labels/images.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { type Answer, furnishLabels, server } from '../../server/support.ts';

/** Long work for the renderer, and a small image. */
const text = `<tally-text x="0" y="9" width="10" font-size="900" min-font-size="1">${'Union of all '.repeat(300)}</tally-text>`;
const slow = (nth: number): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200"><rect width="${nth}" height="9"/>${text.repeat(50)}</svg>`;

test('SEC-2: images are drawn while no transaction is open: for a change, and for a preview', async () => {
  const scene = await server();
  const ask = await scene.as('admin');
  await furnishLabels(ask);
  // A connection of its own: the requests use those of the server.
  const observer = await Database.connect({ url: scene.databaseUrl, poolSize: 1 });
  onTestFinished(() => observer.close());
  let nth = 10;
  /** The states in which transactions are open while the request waits for a thread, behind other images of its tenant. */
  const openDuring = async (send: () => Promise<Answer>): Promise<Set<string>> => {
    const panel = { width: 200, height: 200, palette: 'bw' } as const;
    const busy = Array.from({ length: Math.min(4, availableParallelism()) }, () =>
      images.render('default', { svg: slow(nth++), values: {}, panel }),
    );
    const states = new Set<string>();
    let isOver = false;
    const answer = send().finally(() => {
      isOver = true;
    });
    while (!isOver) {
      const isWaiting = images.waiting > 0;
      const { rows } = await observer.query<{ state: string }>(
        `select state from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'`,
      );
      // Before and after: so it waited all the time.
      if (isWaiting && images.waiting > 0) for (const { state } of rows) states.add(state);
    }
    expect((await answer).status).toBe(200);
    await Promise.all(busy);
    return states;
  };
  const none = new Set<string>();
  expect(await openDuring(() => ask('PUT', '/v1/label-templates/tag', { svg: slow(1) }))).toEqual(none);
  await ask('PUT', '/v1/label-templates/other', { svg: slow(2) });
  expect(await openDuring(() => ask('GET', '/v1/label-templates/other/preview?store=s1&sku=P0'))).toEqual(
    none,
  );
});
