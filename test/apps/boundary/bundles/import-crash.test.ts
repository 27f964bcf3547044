import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { seededRandom } from '../../../support/seeded-random.ts';
import type { BundleProgress, BundleTask } from './process.ts';
import { essence, into, twoIslands } from './scene.ts';

type Islands = Awaited<ReturnType<typeof twoIslands>>;

const pem = { type: 'pkcs8', format: 'pem' } as const;
const publicPem = { type: 'spki', format: 'pem' } as const;

function taskOf({ plant, enterprise, path }: Islands, action: BundleTask['action']): BundleTask {
  const [own, peer] = action === 'export' ? [plant, enterprise] : [enterprise, plant];
  return {
    action,
    url: own.url,
    folder: own.folder,
    path: path('a.tar'),
    ownKey: own.privateKey.export(pem).toString(),
    peerKey: peer.publicKey.export(publicPem).toString(),
  };
}

/** Runs until its end, or until it is killed when it has told of so many chunks. */
async function run(
  task: BundleTask,
  killAfter = Number.MAX_SAFE_INTEGER,
): Promise<BundleProgress | undefined> {
  const child = fork(join(import.meta.dirname, 'process.ts'), [JSON.stringify(task)], {
    execArgv: [],
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  const ended = once(child, 'exit');
  onTestFinished(() => {
    child.kill('SIGKILL');
  });
  let last: BundleProgress | undefined;
  let told = 0;
  child.on('message', (progress: BundleProgress) => {
    last = progress;
    told += 1;
    if (told === killAfter) child.kill('SIGKILL');
  });
  await ended;
  return last;
}

test('BND-11: an import that is killed leaves whole chunks, and importing again completes it: each fact once, in order', async () => {
  const random = seededRandom();
  const islands = await twoIslands();
  const { append, putObject, send, enterprise, sent, received } = islands;
  const facts = 300;
  for (let n = 1; n <= facts; n++)
    await append(`m${n}`, n % 10 === 5 ? await putObject(`o${n}`, randomBytes(20_000)) : n);
  expect(await send('a.tar')).toMatchObject({ lastOffset: facts });
  const task = taskOf(islands, 'import');
  let kills = 0;
  for (;;) {
    const before = await enterprise.store.frontier(into);
    const last = await run(task, 1 + random.whole(8));
    const reached = (await enterprise.store.frontier(into))?.offset ?? 0;
    // The state before or after a chunk of ten, and never less than what was told.
    expect(reached % 10).toBe(0);
    expect(reached).toBeGreaterThanOrEqual(last?.offset ?? 0);
    expect(reached).toBeGreaterThanOrEqual(before?.offset ?? 0);
    expect((await enterprise.store.state(into))?.last ?? 0).toBe(reached);
    if (last?.isDone) break;
    kills += 1;
  }
  expect(kills).toBeGreaterThan(2);
  expect(essence(await received())).toEqual(essence(await sent()));
  const receipts = await enterprise.store.receipts(into, { after: 0, limit: 1000 });
  let covered = 0;
  for (const { fromOffset, toOffset } of receipts) {
    expect(fromOffset).toBe(covered + 1);
    covered = toOffset;
  }
  expect(covered).toBe(facts);
  for (let n = 5; n <= facts; n += 10) {
    const { bytes } = await enterprise.objects.get({ tenantId: 'default', bucket: 'files', key: `o${n}` });
    let size = 0;
    // Reading all of it compares it with its digest.
    for await (const part of bytes) size += part.length;
    expect(size).toBe(20_000);
  }
}, 300_000);

test('BND-11: memory stays flat with a large object, on both sides', async () => {
  const used = async (size: number): Promise<number[]> => {
    const islands = await twoIslands();
    const { plant, append, path, enterprise } = islands;
    const part = randomBytes(1024 * 1024);
    async function* source() {
      for (let at = 0; at < size; at += part.length) yield part.subarray(0, Math.min(part.length, size - at));
    }
    const name = { bucket: 'files', key: 'large' };
    const stored = await plant.objects.put({ ...name, tenantId: 'default' }, source());
    await append('large', { ...name, ...stored });
    const memory: number[] = [];
    for (const action of ['export', 'import'] as const) {
      const last = await run(taskOf(islands, action));
      expect(last, `${action} of ${path('a.tar')}`).toMatchObject({ offset: 1, isDone: true });
      memory.push(last?.mostMemory ?? 0);
    }
    expect(await enterprise.objects.info({ ...name, tenantId: 'default' })).toMatchObject(stored);
    return memory;
  };
  const megabyte = 1024 * 1024;
  const small = await used(1000);
  const large = await used(200 * megabyte);
  // Loading the object would take 200 MB more; parts that wait for the garbage collector take some.
  for (const [i, each] of large.entries()) expect(each - (small[i] ?? 0)).toBeLessThan(100 * megabyte);
}, 300_000);
