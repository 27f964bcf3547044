import { createHash } from 'node:crypto';
import { join } from 'node:path';
import type { Blobs } from '../../../../src/apps/boundary/objects/blobs.ts';

export const digestOf = (bytes: Uint8Array): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

export async function* chunks(bytes: Uint8Array, size = 100_000): AsyncIterable<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

/** The source breaks off after so many bytes. */
export async function* cutAfter(bytes: Uint8Array, count: number): AsyncIterable<Uint8Array> {
  yield* chunks(bytes.subarray(0, count));
  throw new Error('the line was cut');
}

export async function whole(bytes: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of bytes) parts.push(part);
  return Buffer.concat(parts);
}

export const roomy = { maxBytes: 1024 ** 3 };

/** Stored and visible. */
export async function publish(on: Blobs, bytes: Uint8Array): Promise<string> {
  const staged = await on.stage(chunks(bytes), roomy);
  try {
    await staged.publish();
  } finally {
    await staged.discard();
  }
  return staged.digest;
}

export const readAll = (on: Blobs, digest: string, size: number): Promise<Buffer> =>
  whole(on.read(digest, { from: 0, count: size }));

/** Whether they are stored and are what is read. (Comparing large buffers with `toEqual` takes seconds.) */
export const hasBytes = async (on: Blobs, bytes: Buffer): Promise<boolean> =>
  (await readAll(on, digestOf(bytes), bytes.length)).equals(bytes);

/** The same bytes for the same name, in every process. */
export function bytesNamed(name: string, size: number): Buffer {
  const bytes = Buffer.alloc(size);
  const seed = createHash('sha256').update(name).digest();
  for (let at = 0; at < size; at += seed.length) seed.copy(bytes, at);
  bytes.write(name, 0);
  return bytes;
}

/** Where `FileBlobs` keeps them. */
export const fileOf = (folder: string, digest: string): string => {
  const hex = digest.slice('sha256:'.length);
  return join(folder, 'blobs', hex.slice(0, 2), hex.slice(2, 4), hex);
};
