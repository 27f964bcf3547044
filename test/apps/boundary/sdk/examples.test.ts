import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type Ended, inRoot, start } from '../../../cli/support.ts';
import { until } from '../../../support/until.ts';
import { fact, numbers, out, plant, producer } from './scene.ts';

/** Its output, if it ended well. Node says once that SQLite is new to it. */
function saidBy({ code, stdout, stderr }: Ended): string {
  const rest = stderr.replace(/.*SQLite is an experimental.*\n.*\n/, '');
  expect([code, rest]).toEqual([0, '']);
  return stdout;
}

test('BND-14: examples/boundary: a producer with an object and a consumer do what they say, and end by themselves', async () => {
  const { url, folder, store, ids } = await plant();
  const env = { NODE_URL: url, OUTBOX: join(folder, 'example.db'), PARKED: join(folder, 'parked.db') };
  // The second run finds its facts stored.
  for (const _ of numbers(2))
    expect(saidBy(await start('examples/boundary/producer.ts', [], { env }).ended)).toBe(
      'the outbox has it: true\n' +
        'work_order:WO-2026-001 is stored at offset 1\nwork_order:WO-2026-001 is stored at offset 2\n',
    );
  expect(await ids()).toHaveLength(2);

  const to = await producer({ url, outbox: join(folder, 'other.db') });
  await to.append({ ...fact('strange'), predicate: 'is_strange' });
  await to.flush();
  const run = start('examples/boundary/consumer.ts', [], { env });
  await until('all are confirmed', async () => (await store.consumers(out))[0]?.cursor === 3);
  run.child.kill('SIGTERM');
  const said = saidBy(await run.ended);
  expect(said).toMatch(/^work_order:WO-2026-001 has order-2026-03-06-001.pdf, 12 bytes\n/);
  expect(said).toContain('work_order:WO-2026-001 is {"state":"done"}\n');
  expect(said).toContain('a fact could not be handled; it is parked');
  expect(said).toMatch(/1 facts are parked\n$/);
  for (const name of ['producer', 'consumer'])
    expect(
      readFileSync(inRoot(`examples/boundary/${name}.ts`), 'utf8').split('\n').length,
    ).toBeLessThanOrEqual(41);
}, 240_000);
