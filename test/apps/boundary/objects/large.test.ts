/**
 * A large object through `tallyman serve`, in processes of their own: cut off, continued, read, and crossing into another zone,
 * in flat memory. TEST_OBJECT_BYTES=1073741824 takes one of 1 GiB, TEST_OBJECT_STORAGE=files or jetstream only that storage.
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
const size = Number(process.env.TEST_OBJECT_BYTES ?? 192 * MiB);
const chosen = process.env.TEST_OBJECT_STORAGE as StorageName | undefined;
/**
 * What a process may grow by, whatever the size of the object. Most of it are buffers that wait for the next collection of
 * garbage; what comes from JetStream is copied once more by its client.
 */
const mostGrowth = { files: 100 * MiB, jetstream: 160 * MiB } as const;

/** The bytes of the object from a place on: every MiB is another one. */
function* bytesFrom(from: number): Generator<Buffer> {
  const base = Buffer.alloc(MiB, createHash('sha512').update('large').digest());
  for (let at = from; at < size; ) {
    const n = Math.floor(at / MiB);
    const block = Buffer.from(base);
    block.writeUInt32BE(n, 0);
    const part = block.subarray(at % MiB, Math.min(MiB, size - n * MiB));
    yield part;
    at += part.length;
  }
}

const digest = ((): string => {
  const hash = createHash('sha256');
  for (const part of bytesFrom(0)) hash.update(part);
  return `sha256:${hash.digest('hex')}`;
})();

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

/** Requests with a certificate of the zone. */
async function browser(place: Place, role: 'producer' | 'consumer', port: number) {
  const [key, cert] = await Promise.all(
    ['key', 'crt'].map((kind) => readFile(join(place.folder, `${role}.${kind}`), 'utf8')),
  );
  const path = '/objects/files/large';
  const open = (method: string, headers: Record<string, string | number> = {}) =>
    request({ host: 'localhost', port, key, cert, ca: place.ca, method, path, headers, agent: false });
  const answerOf = async (sent: ReturnType<typeof open>): Promise<IncomingMessage> => {
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    return answer;
  };
  return {
    /** Sends so many bytes of it, and is gone. */
    cutPut: async (count: number): Promise<void> => {
      const sent = open('PUT', { 'x-object-digest': digest, 'content-length': size });
      const closed = new Promise<void>((resolve) => sent.once('close', () => resolve()));
      sent.on('error', () => {});
      let left = count;
      for (const part of bytesFrom(0)) {
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
      const [answer] = await Promise.all([answerOf(sent), pipeline(Readable.from(bytesFrom(from)), sent)]);
      return JSON.parse(Buffer.concat(await answer.toArray()).toString());
    },
    get: async (range?: { readonly from: number; readonly count: number }): Promise<string> => {
      const sent = open('GET', range ? { range: `bytes=${range.from}-${range.from + range.count - 1}` } : {});
      sent.end();
      const answer = await answerOf(sent);
      const hash = createHash('sha256');
      for await (const part of answer) hash.update(part);
      expect(answer.statusCode).toBe(range ? 206 : 200);
      return `sha256:${hash.digest('hex')}`;
    },
  };
}

test.each<StorageName>(chosen ? [chosen] : ['files', 'jetstream'])(
  'BND-5, BND-17: a large object on %s: cut off, continued, read and carried over in flat memory',
  async (kind) => {
    const took: Record<string, number> = {};
    const timed = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
      const since = performance.now();
      const done = await work();
      took[what] = Math.round(performance.now() - since);
      return done;
    };
    const { plant, enterprise } = await pairedZones();
    const [ours, theirs] = await Promise.all([storages[kind](), storages[kind]()]);
    onTestFinished(async () => {
      await Promise.all([ours.stop(), theirs.stop()]);
    });
    const [source, target] = await Promise.all([serveOf(plant, ours.env), serveOf(enterprise, theirs.env)]);
    const producer = await browser(plant, 'producer', source.port);

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
    for (const part of bytesFrom(range.from)) {
      wanted.update(part.subarray(0, left));
      left -= Math.min(left, part.length);
      if (left === 0) break;
    }
    expect(await producer.get(range)).toBe(`sha256:${wanted.digest('hex')}`);
    expect(await timed('read', () => producer.get())).toBe(digest);

    const client = await clientOf(plant, 'producer', source.port);
    await timed('cross', async () => {
      await client.appendFact(
        factOf('m1', 'plant-a', 'enterprise', { bucket: 'files', key: 'large', digest }),
      );
      await until(
        'the fact has crossed',
        async () => (await enterprise.rows('select 1 from boundary.receipts')).length > 0,
        600_000,
      );
    });
    const consumer = await browser(enterprise, 'consumer', target.port);
    expect(await consumer.get()).toBe(digest);

    const growth = [source, target].map(({ started, before }) => memory(started, 'VmHWM') - before);
    const inMiB = (bytes: number): number => Math.round(bytes / MiB);
    console.info(
      `${kind}, ${inMiB(size)} MiB: at the start ${inMiB(source.before)} and ${inMiB(target.before)} MiB, grown by at most ` +
        `${growth.map(inMiB).join(' and ')} MiB; milliseconds: ${JSON.stringify(took)}`,
    );
    for (const grown of growth) expect(grown).toBeLessThan(mostGrowth[kind]);
  },
  1_200_000,
);
