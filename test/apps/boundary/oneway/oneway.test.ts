import type { KeyObject } from 'node:crypto';
import {
  copyFile,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { ReceiptKey } from '../../../../src/apps/boundary/domain/receipt.ts';
import { startNewEpoch } from '../../../../src/apps/boundary/epochs/new-epoch.ts';
import { HandOff } from '../../../../src/apps/boundary/handoff/loop.ts';
import { fromInbox } from '../../../../src/apps/boundary/oneway/carry.ts';
import { Inbox, type InboxOptions } from '../../../../src/apps/boundary/oneway/inbox.ts';
import { oneWay, sendAgain, sendNew } from '../../../../src/apps/boundary/oneway/outbox.ts';
import { trimConfirmed } from '../../../../src/apps/boundary/retention.ts';
import { loadReceiptKey } from '../../../../src/apps/boundary/settings.ts';
import { unavailableError } from '../../../../src/apps/boundary/store/jetstream/errors.ts';
import type { FactStore } from '../../../../src/apps/boundary/store/store.ts';
import { type Logger, silentLogger } from '../../../../src/engine/logger.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import { until } from '../../../support/until.ts';
import { essence, into, out, twoIslands } from '../bundles/scene.ts';

async function withDiode() {
  const islands = await twoIslands();
  const { folder, exportOptions, importOptions } = islands;
  const [outbox, inbox] = [join(folder, 'outbox'), join(folder, 'inbox')];
  for (const each of [outbox, inbox]) await mkdir(each);
  let clock = 1_790_000_000_000;
  const now = () => {
    clock += 1;
    return clock;
  };
  const receiver = new Inbox({ ...importOptions, folder: inbox });
  const sending = { ...exportOptions, folder: outbox, instance: 'i1', maxFacts: 20, now };
  return {
    ...islands,
    outbox,
    inbox,
    sending,
    receive: () => receiver.look(),
    receiverWith: (more: Partial<InboxOptions>) => new Inbox({ ...importOptions, folder: inbox, ...more }),
    /** Carries every file over that `isLost` does not say is lost. Files never come back. */
    carry: async (isLost: (file: string) => boolean = () => false): Promise<string[]> => {
      const lost: string[] = [];
      for (const file of (await readdir(outbox)).filter((each) => each.endsWith('.tar'))) {
        if (isLost(file)) lost.push(file);
        else await copyFile(join(outbox, file), join(inbox, file));
        await rm(join(outbox, file));
      }
      return lost;
    },
  };
}

/** The enterprise, as a node that runs: looks into its inbox with what its configuration says. */
function receiving(
  { plant, enterprise, inbox }: Awaited<ReturnType<typeof withDiode>>,
  {
    receiptKeys = [plant.publicKey],
    store = enterprise.store,
    logger = silentLogger,
    quietMs = 60_000,
  }: {
    readonly receiptKeys?: readonly KeyObject[];
    readonly store?: FactStore;
    readonly logger?: Logger;
    readonly quietMs?: number;
  } = {},
): HandOff {
  const { zone, objects, receiptKey } = enterprise.node;
  const peer = { zone: plant.node.zone, url: undefined, ways: ['one-way'] as const, receiptKeys, inbox };
  const parts = { settings: { zone, peers: [peer] }, store, objects };
  const handOff = new HandOff({
    stream: into,
    once: fromInbox(parts, { receiptKey, logger }, into, inbox, { quietMs }),
    logger,
    waitMs: 10,
    retry: { minMs: 10, maxMs: 50 },
  });
  onTestFinished(() => handOff.stop());
  handOff.start();
  return handOff;
}

/** As a node loads it: named by its own hash. */
async function keyOfPlant({ plant, path }: Awaited<ReturnType<typeof withDiode>>): Promise<ReceiptKey> {
  const file = path('receipt.key');
  await writeFile(file, plant.privateKey.export({ format: 'pem', type: 'pkcs8' }));
  return loadReceiptKey(file);
}

const tars = async (folder: string): Promise<string[]> =>
  (await readdir(folder)).filter((file) => file.endsWith('.tar')).sort();

async function sendAll(sending: Parameters<typeof sendNew>[0]): Promise<number> {
  let files = 0;
  while (await sendNew(sending)) files += 1;
  return files;
}

describe('one-way mode', () => {
  test('BND-11: facts cross a diode without confirmations; a lost bundle is noticed, named, and made up for by sending again', async () => {
    const { append, putObject, sending, carry, receive, inbox, sent, received } = await withDiode();
    for (let n = 1; n <= 100; n++)
      await append(`m${n}`, n % 25 === 0 ? await putObject(`o${n}`, Buffer.from(`bytes ${n}`)) : n);
    expect(await sendAll(sending)).toBe(5);
    expect(await sendNew(sending)).toBeUndefined();
    expect(await carry((file) => file.includes('.0000000000000041-'))).toHaveLength(1);
    const first = await receive();
    expect(first.imported.map(({ taken }) => taken)).toEqual([20, 20]);
    expect(first.waiting).toHaveLength(2);
    expect(first.missing).toEqual([{ from: 'plant-a', to: 'enterprise', fromOffset: 41, toOffset: 60 }]);
    expect((await received()).at(-1)?.offset).toBe(40);
    // Nothing changes by itself, and nothing is skipped.
    expect(await receive()).toMatchObject({ imported: [], missing: first.missing });
    const [missing] = first.missing;
    await sendAgain(sending, { from: missing?.fromOffset ?? 0, to: missing?.toOffset ?? 0 });
    await carry();
    const second = await receive();
    expect(second.imported.map(({ taken }) => taken)).toEqual([20, 20, 20]);
    expect(second).toMatchObject({ waiting: [], missing: [], refused: [], incomplete: [] });
    expect(essence(await received())).toEqual(essence(await sent()));
    expect((await readdir(join(inbox, 'done'))).length).toBe(5);
  });

  test('BND-11: a diode that loses at random is made up for by the scheduled re-send, however often', async () => {
    const random = seededRandom();
    const { append, sending, carry, receive, sent, received, enterprise } = await withDiode();
    for (let round = 0; round < 6; round++) {
      await Promise.all(Array.from({ length: 30 }, (_, i) => append(`r${round} ${i}`, i)));
      await sendAll(sending);
      await carry(() => random.chance(0.5));
      await receive();
    }
    await until('everything has crossed', async () => {
      await sendAgain(sending, { since: new Date(0) });
      await carry(() => random.chance(0.5));
      await receive();
      return (await enterprise.store.frontier(into))?.offset === 180;
    });
    expect(essence(await received())).toEqual(essence(await sent()));
  });

  test('BND-11: what was sent may be trimmed by age, and later facts still follow', async () => {
    const { plant, append, sending, carry, receive, received } = await withDiode();
    for (let n = 1; n <= 10; n++) await append(`m${n}`, n);
    await sendAll(sending);
    expect(await trimConfirmed(plant.store, out, new Date(Date.now() + 3_600_000))).toBe(10);
    for (let n = 11; n <= 15; n++) await append(`m${n}`, n);
    await sendAll(sending);
    await carry();
    expect((await receive()).imported.map(({ taken }) => taken)).toEqual([10, 5]);
    expect(await received()).toHaveLength(15);
    expect(await plant.store.exported(out, { after: 0, limit: 10 })).toMatchObject([
      { from: 1, to: 10 },
      { from: 11, to: 15 },
    ]);
    // What is left is sent again; without the note it begins where its past is known.
    const again = async () =>
      (await sendAgain(sending, { since: new Date(0) })).map(({ manifest }) => manifest.firstOffset);
    expect(await again()).toEqual([11]);
    await plant.database.query('delete from boundary.exports where to_offset = 10');
    expect(await again()).toEqual([12]);
  });

  test('BND-11: a file that is still being written waits; a damaged one is put aside with the reason', async () => {
    const { append, sending, carry, receive, inbox, received } = await withDiode();
    for (let n = 1; n <= 40; n++) await append(`m${n}`, n);
    await sendAll(sending);
    await carry();
    const [whole = '', other = ''] = await tars(inbox);
    const complete = await readFile(join(inbox, whole));
    await truncate(join(inbox, whole), 3000);
    const bytes = await readFile(join(inbox, other));
    bytes[1000] = (bytes[1000] ?? 0) ^ 1;
    await writeFile(join(inbox, other), bytes);
    expect(await receive()).toMatchObject({
      incomplete: [whole],
      waiting: [other],
      imported: [],
      refused: [],
    });
    expect(await received()).toEqual([]);
    await writeFile(join(inbox, whole), complete);
    const { incomplete, refused, imported } = await receive();
    expect([incomplete, imported]).toEqual([[], [{ file: whole, taken: 20 }]]);
    expect(refused).toMatchObject([{ file: other, why: expect.stringContaining('the bundle is refused') }]);
    expect((await readdir(join(inbox, 'refused'))).sort()).toEqual([other, `${other}.txt`].sort());
    expect(await received()).toHaveLength(20);
  });

  test('BND-4, BND-11: after a restore, files of the new epoch stay until it is accepted: the trouble has the command', async () => {
    const diode = await withDiode();
    const { plant, enterprise, append, carry, inbox, received } = diode;
    const sending = { ...diode.sending, key: await keyOfPlant(diode) };
    for (let n = 1; n <= 10; n++) await append(`m${n}`, n);
    await sendAll(sending);
    await carry();
    const handOff = receiving(diode);
    const arrived = async () => (await enterprise.store.frontier(into))?.offset;
    await until('the first ones have come', async () => (await arrived()) === 10);
    const { database, store, objects } = plant;
    const { epoch, chain } = await startNewEpoch({
      ...{ database, store, objects, stream: out },
      reached: { offset: 10 },
    });
    for (let n = 11; n <= 50; n++) await append(`m${n}`, n);
    await sendAll(sending);
    await carry();
    const waiting = await tars(inbox);
    expect(waiting).toHaveLength(2);
    await until('the mode says so', () => handOff.mode === 'refused');
    expect(handOff.trouble).toContain(waiting[0]);
    expect(handOff.trouble).toContain(
      'In zone "plant-a" run: tallyman zones new-epoch enterprise --after 10',
    );
    expect([await tars(inbox), await readdir(join(inbox, 'refused'))]).toEqual([waiting, []]);
    await enterprise.store.acceptEpoch(into, epoch, chain);
    await until('the others have come', async () => (await arrived()) === 50);
    await until('nothing is wrong', () => handOff.mode === 'normal');
    expect((await received()).map(({ key }) => key)).toEqual((await diode.sent()).map(({ key }) => key));
  });

  test('BND-11: without the key of the other zone files stay, and the trouble names it', async () => {
    const diode = await withDiode();
    const { plant, enterprise, append, carry, inbox } = diode;
    const key = await keyOfPlant(diode);
    await append('a');
    await sendAll({ ...diode.sending, key });
    await carry();
    const [file = ''] = await tars(inbox);
    const another = receiving(diode, { receiptKeys: [enterprise.publicKey] });
    await until('the mode says so', () => another.mode === 'refused');
    await another.stop();
    expect(another.trouble).toContain(`${file} stays in the inbox`);
    expect(another.trouble).toContain(`the key "${key.id}"`);
    expect(another.trouble).toContain('boundary.peers.plant-a.receiptKeys');
    expect([await tars(inbox), await readdir(join(inbox, 'refused'))]).toEqual([[file], []]);
    receiving(diode, { receiptKeys: [plant.publicKey] });
    await until('it was taken', async () => (await enterprise.store.frontier(into))?.offset === 1);
  });

  test('BND-11, BND-15: while the storage of the receiving zone is away no file leaves the inbox', async () => {
    const diode = await withDiode();
    const { enterprise, append, carry, inbox } = diode;
    for (let n = 1; n <= 40; n++) await append(`m${n}`, n);
    await sendAll({ ...diode.sending, key: await keyOfPlant(diode) });
    await carry();
    let isAway = true;
    const { store } = enterprise;
    const flaky = new Proxy(store, {
      get: (target, name: keyof FactStore) => {
        if (name === 'deliver' && isAway)
          return () => Promise.reject(unavailableError(new Error('no majority'), false, 'facts'));
        const found = target[name];
        return typeof found === 'function' ? found.bind(target) : found;
      },
    });
    const handOff = receiving(diode, { store: flaky });
    await until('the mode says so', () => handOff.mode === 'refused');
    expect(handOff.trouble).toContain('the JetStream cluster that keeps the facts cannot be used');
    expect([(await tars(inbox)).length, await readdir(join(inbox, 'refused'))]).toEqual([2, []]);
    isAway = false;
    await until('all were taken', async () => (await store.frontier(into))?.offset === 40);
    await until('nothing is wrong', () => handOff.mode === 'normal');
  });

  test('BND-11: while a file is missing, those behind it are not read: a damaged one is put aside when its turn comes', async () => {
    const { append, sending, carry, receive, inbox } = await withDiode();
    for (let n = 1; n <= 60; n++) await append(`m${n}`, n);
    await sendAll(sending);
    await carry((file) => file.includes('.0000000000000001-'));
    const [second = '', third = ''] = await tars(inbox);
    const bytes = await readFile(join(inbox, third));
    bytes[3000] = (bytes[3000] ?? 0) ^ 1;
    await writeFile(join(inbox, third), bytes);
    expect(await receive()).toMatchObject({
      waiting: [second, third],
      missing: [{ fromOffset: 1, toOffset: 20 }],
      refused: [],
    });
    await sendAgain(sending, { from: 1, to: 20 });
    await carry();
    expect(await receive()).toMatchObject({
      imported: [{ taken: 20 }, { file: second, taken: 20 }],
      refused: [{ file: third }],
    });
  });

  test('BND-11: a file that ends too early is read again when it has changed, and told of when it does not grow', async () => {
    const { append, sending, carry, receiverWith, inbox } = await withDiode();
    for (let n = 1; n <= 20; n++) await append(`m${n}`, n);
    await sendAll(sending);
    await carry();
    const [file = ''] = await tars(inbox);
    const path = join(inbox, file);
    const whole = await readFile(path);
    const write = async (bytes: Uint8Array, time: number) => {
      await writeFile(path, bytes);
      await utimes(path, time, time);
    };
    let clock = 0;
    const receiver = receiverWith({ clock: () => clock, quietMs: 1000 });
    await write(whole.subarray(0, 3000), 1_790_000_000);
    const short = { incomplete: [file], refused: [], imported: [] };
    expect(await receiver.look()).toMatchObject({ ...short, cutOff: [] });
    // Were it read, it would be refused.
    await write(Buffer.alloc(3000, 'x'), 1_790_000_000);
    clock = 999;
    expect(await receiver.look()).toMatchObject({ ...short, cutOff: [] });
    clock = 1000;
    expect(await receiver.look()).toMatchObject({ ...short, cutOff: [file] });
    await write(whole.subarray(0, 3000), 1_790_000_001);
    expect(await receiver.look()).toMatchObject({ ...short, cutOff: [] });
    await write(whole, 1_790_000_001);
    expect(await receiver.look()).toMatchObject({ imported: [{ file, taken: 20 }], incomplete: [] });
  });

  test('BND-11: a file that does not grow is in the log once, and in the trouble until it is whole', async () => {
    const diode = await withDiode();
    const { append, carry, inbox } = diode;
    for (let n = 1; n <= 20; n++) await append(`m${n}`, n);
    await sendAll({ ...diode.sending, key: await keyOfPlant(diode) });
    await carry();
    const [file = ''] = await tars(inbox);
    const whole = await readFile(join(inbox, file));
    await truncate(join(inbox, file), 3000);
    const warnings: string[] = [];
    const logger = { ...silentLogger, warn: (_: object, message: string) => warnings.push(message) };
    const handOff = receiving(diode, { logger, quietMs: 20 });
    await until('the mode says so', () => handOff.mode === 'refused');
    expect(handOff.trouble).toContain(`${file} ends too early and has not grown for a while`);
    await writeFile(join(inbox, 'whole.part'), whole);
    await rename(join(inbox, 'whole.part'), join(inbox, file));
    await until('nothing is wrong', () => handOff.mode === 'normal');
    expect(await readdir(join(inbox, 'done'))).toEqual([file]);
    expect(warnings.filter((each) => each.includes('ends too early'))).toHaveLength(1);
  });

  test('BND-11: a look ends between two chunks when the node stops, and the next one goes on there', async () => {
    const { append, sending, carry, receiverWith, inbox, enterprise } = await withDiode();
    for (let n = 1; n <= 40; n++) await append(`m${n}`, n);
    await sendAll(sending);
    await carry();
    const stopping = new AbortController();
    const receiver = receiverWith({ onProgress: () => stopping.abort() });
    expect(await receiver.look(stopping.signal)).toMatchObject({ imported: [], failed: undefined });
    expect((await enterprise.store.frontier(into))?.offset).toBe(10);
    expect(await tars(inbox)).toHaveLength(2);
    expect((await receiver.look()).imported.map(({ taken }) => taken)).toEqual([10, 20]);
  });

  test('BND-11: a loop sends what is appended, and sends again on schedule', async () => {
    const { append, sending, outbox } = await withDiode();
    const { now: _, ...rest } = sending;
    const handOff = new HandOff({
      stream: out,
      once: oneWay({ ...rest, gatherMs: 10, resend: { everyMs: 200, windowMs: 3_600_000 } }),
      logger: silentLogger,
      waitMs: 1000,
      retry: { minMs: 10, maxMs: 50 },
    });
    onTestFinished(() => handOff.stop());
    handOff.start();
    for (let n = 1; n <= 10; n++) await append(`m${n}`, n);
    await until('everything left twice', async () => {
      const lasts = (await readdir(outbox)).filter((file) => /-0000000000000010\.\d+\.tar$/.test(file));
      return lasts.length >= 2;
    });
    expect(handOff.mode).toBe('normal');
  });
});
