/**
 * A large object through `tallyman serve`, in processes of their own: cut off, continued, read, and crossing into another zone,
 * in the memory that a small one takes. TEST_OBJECT_BYTES=1073741824 takes one of 1 GiB, TEST_OBJECT_STORAGE=files or jetstream
 * only that storage.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { expect, onTestFinished, test } from 'vitest';
import { type Started, start } from '../../../cli/support.ts';
import { until } from '../../../support/until.ts';
import { clientOf, factOf, type Place, pairedZones } from '../zones.ts';
import { type StorageName, storages } from './storage.ts';

const MiB = 1024 * 1024;
const small = 48 * MiB;
const large = Number(process.env.TEST_OBJECT_BYTES ?? 192 * MiB);
const chosen = process.env.TEST_OBJECT_STORAGE as StorageName | undefined;
/**
 * What a process may take more for the large object than for the small one. Not nothing: buffers wait for the collection of
 * garbage, and how many depends on how busy the machine is. A process that kept what passes through it would take the whole
 * difference in size, or more.
 */
const mostMore = Math.min(0.6 * (large - small), 128 * MiB);

class Sample {
  readonly key: string;
  readonly size: number;
  readonly digest: string;

  constructor(key: string, size: number) {
    this.key = key;
    this.size = size;
    const hash = createHash('sha256');
    for (const part of this.bytesFrom(0)) hash.update(part);
    this.digest = `sha256:${hash.digest('hex')}`;
  }

  /** The bytes from a place on: every MiB is another one. */
  *bytesFrom(from: number): Generator<Buffer> {
    const base = Buffer.alloc(MiB, createHash('sha512').update(this.key).digest());
    for (let at = from; at < this.size; ) {
      const n = Math.floor(at / MiB);
      const block = Buffer.from(base);
      block.writeUInt32BE(n, 0);
      const part = block.subarray(at % MiB, Math.min(MiB, this.size - n * MiB));
      yield part;
      at += part.length;
    }
  }
}

/** A line of `/proc/<pid>/status`, in bytes. */
const memory = ({ child }: Started, line: 'VmRSS' | 'VmHWM'): number =>
  Number(new RegExp(`${line}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) *
  1024;

async function serveOf(place: Place, env: Readonly<Record<string, string>>) {
  const started = start('src/cli/main.ts', ['serve', '--only', 'boundary', '--migrate'], {
    env: { ...place.env, ...env },
    cwd: place.folder,
  });
  const port = Number(await started.said(/"boundary +zone [a-z-]+ on https:\/\/[^:]+:(\d+)/));
  return { started, port, before: memory(started, 'VmRSS') };
}

/** Requests for an object with a certificate of the zone. */
async function browser(place: Place, role: 'producer' | 'consumer', port: number, sample: Sample) {
  const { digest, size } = sample;
  const [key, cert] = await Promise.all(
    ['key', 'crt'].map((kind) => readFile(join(place.folder, `${role}.${kind}`), 'utf8')),
  );
  const path = `/objects/files/${sample.key}`;
  const open = (method: string, headers: Record<string, string | number> = {}) =>
    request({ host: 'localhost', port, key, cert, ca: place.ca, method, path, headers, agent: false });
  const answerOf = async (sent: ReturnType<typeof open>): Promise<IncomingMessage> => {
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    return answer;
  };
  const startGet = async (range?: string): Promise<IncomingMessage> => {
    const sent = open('GET', range === undefined ? {} : { range });
    sent.end();
    const answer = await answerOf(sent);
    expect(answer.statusCode).toBe(range === undefined ? 200 : 206);
    return answer;
  };
  return {
    /** Sends so many bytes of it, and is gone. */
    cutPut: async (count: number): Promise<void> => {
      const sent = open('PUT', { 'x-object-digest': digest, 'content-length': size });
      const closed = new Promise<void>((resolve) => sent.once('close', () => resolve()));
      sent.on('error', () => {});
      let left = count;
      for (const part of sample.bytesFrom(0)) {
        if (left <= 0) break;
        left -= part.length;
        if (!sent.write(part)) await once(sent, 'drain');
      }
      sent.destroy();
      await closed;
    },
    kept: async (): Promise<number> => {
      const sent = open('HEAD');
      sent.end();
      const answer = await answerOf(sent);
      answer.resume();
      return Number(answer.headers['x-upload-offset'] ?? 0);
    },
    put: async (from: number): Promise<unknown> => {
      const sent = open('PUT', {
        'x-object-digest': digest,
        'content-length': size - from,
        'content-range': `bytes ${from}-${size - 1}/${size}`,
      });
      const source = Readable.from(sample.bytesFrom(from));
      const [answer] = await Promise.all([answerOf(sent), pipeline(source, sent)]);
      return JSON.parse(Buffer.concat(await answer.toArray()).toString());
    },
    get: async (range?: string): Promise<string> => {
      const hash = createHash('sha256');
      for await (const part of await startGet(range)) hash.update(part);
      return `sha256:${hash.digest('hex')}`;
    },
    /** Is gone after so many bytes, and gets the rest with a range. */
    cutGet: async (count: number): Promise<string> => {
      const hash = createHash('sha256');
      let got = 0;
      // Leaving the loop ends the connection.
      for await (const part of await startGet()) {
        hash.update(part);
        got += part.length;
        if (got >= count) break;
      }
      expect(got).toBeLessThan(size);
      const rest = await startGet(`bytes=${got}-`);
      expect(rest.headers['content-range']).toBe(`bytes ${got}-${size - 1}/${size}`);
      for await (const part of rest) hash.update(part);
      return `sha256:${hash.digest('hex')}`;
    },
  };
}

type Zone = { readonly place: Place } & Awaited<ReturnType<typeof serveOf>>;

/** All that is done with an object, from the first byte to the other zone. Returns the milliseconds that it took. */
async function carry(sample: Sample, source: Zone, target: Zone): Promise<Record<string, number>> {
  const { key, size, digest } = sample;
  const took: Record<string, number> = {};
  const timed = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
    const since = performance.now();
    const done = await work();
    took[what] = Math.round(performance.now() - since);
    return done;
  };
  const producer = await browser(source.place, 'producer', source.port, sample);

  await timed('cut', () => producer.cutPut(Math.floor(size * 0.6)));
  let kept = 0;
  await until('what has come is kept', async () => {
    kept = await producer.kept();
    return kept > 0;
  });
  expect(kept).toBeGreaterThan(size / 2);
  expect(kept).toBeLessThan(size);
  expect(await timed('rest', () => producer.put(kept))).toEqual({ digest, size });

  const range = { from: Math.floor(size / 2) - 12_345, count: 3 * MiB };
  const wanted = createHash('sha256');
  let left = range.count;
  for (const part of sample.bytesFrom(range.from)) {
    wanted.update(part.subarray(0, left));
    left -= Math.min(left, part.length);
    if (left === 0) break;
  }
  expect(await producer.get(`bytes=${range.from}-${range.from + range.count - 1}`)).toBe(
    `sha256:${wanted.digest('hex')}`,
  );
  expect(await timed('read', () => producer.get())).toBe(digest);
  expect(await timed('cut read', () => producer.cutGet(Math.floor(size * 0.6)))).toBe(digest);

  const client = await clientOf(source.place, 'producer', source.port);
  const receipts = async (): Promise<number> =>
    (await target.place.rows('select 1 from boundary.receipts')).length;
  const before = await receipts();
  await timed('cross', async () => {
    await client.appendFact(factOf(key, 'plant-a', 'enterprise', { bucket: 'files', key, digest }));
    await until('the fact has crossed', async () => (await receipts()) > before, 600_000);
  });
  const consumer = await browser(target.place, 'consumer', target.port, sample);
  expect(await consumer.get()).toBe(digest);
  return took;
}

test.each<StorageName>(chosen ? [chosen] : ['files', 'jetstream'])(
  'BND-5, BND-17: a large object on %s: cut off, continued, read and carried over in the memory of a small one',
  async (kind) => {
    const { plant, enterprise } = await pairedZones();
    const [ours, theirs] = await Promise.all([storages[kind](), storages[kind]()]);
    onTestFinished(async () => {
      await Promise.all([ours.stop(), theirs.stop()]);
    });
    const [source, target] = await Promise.all(
      [
        { place: plant, env: ours.env },
        { place: enterprise, env: theirs.env },
      ].map(async ({ place, env }) => ({ place, ...(await serveOf(place, env)) })),
    );
    if (!source || !target) throw new Error('two zones are needed');
    const highest = (): number[] => [source, target].map(({ started }) => memory(started, 'VmHWM'));
    await carry(new Sample('small', small), source, target);
    const afterSmall = highest();
    const took = await carry(new Sample('large', large), source, target);
    const grown = highest().map((bytes, i) => bytes - (afterSmall[i] ?? 0));

    const inMiB = (bytes: number): number => Math.round(bytes / MiB);
    console.info(
      `${kind}: at the start ${inMiB(source.before)} and ${inMiB(target.before)} MiB; after ${inMiB(small)} MiB at most ` +
        `${afterSmall.map(inMiB).join(' and ')} MiB; for ${inMiB(large)} MiB ${grown.map(inMiB).join(' and ')} MiB more; ` +
        `milliseconds: ${JSON.stringify(took)}`,
    );
    for (const more of grown) expect(more).toBeLessThan(mostMore);
  },
  1_200_000,
);
