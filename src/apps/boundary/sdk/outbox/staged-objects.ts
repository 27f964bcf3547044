/**
 * Bytes of attachments that wait to be sent, beside the outbox: files under their digest. A file is whole and durable before
 * the fact that needs it is committed, and goes when no fact needs it any more.
 */
import { createHash, randomUUID } from 'node:crypto';
import { createReadStream, rmSync } from 'node:fs';
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ObjectSource, StoredObject } from '../objects.ts';

const prefix = 'sha256:';
const unfinished = '.part';

export class StagedObjects {
  readonly #folder: string;
  /** Digests of facts that are about to be committed: their files stay, although no row needs them yet. */
  readonly #pins = new Map<string, number>();

  /** Removes what a crash has left: unfinished files, and those that no fact needs. */
  static async open(folder: string, isNeeded: (digest: string) => boolean): Promise<StagedObjects> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    for (const name of await readdir(folder))
      if (name.endsWith(unfinished) || !isNeeded(`${prefix}${name}`))
        await rm(join(folder, name), { force: true });
    return new StagedObjects(folder);
  }

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * Keeps the bytes, durably, and pins them until `unpin`. `tooLarge` makes the error if they are more than `room`; nothing is
   * kept then.
   */
  async stage(source: ObjectSource, room: number, tooLarge: () => Error): Promise<StoredObject> {
    const part = join(this.#folder, `${randomUUID()}${unfinished}`);
    try {
      const stored = await write(part, source, room, tooLarge);
      // Before the rename: from here on `release` leaves the file alone.
      this.#pins.set(stored.digest, (this.#pins.get(stored.digest) ?? 0) + 1);
      try {
        await rename(part, this.fileOf(stored.digest));
        await flushFolder(this.#folder);
      } catch (error) {
        this.unpin(stored.digest);
        throw error;
      }
      return stored;
    } finally {
      await rm(part, { force: true });
    }
  }

  unpin(digest: string): void {
    const left = (this.#pins.get(digest) ?? 1) - 1;
    if (left > 0) this.#pins.set(digest, left);
    else this.#pins.delete(digest);
  }

  fileOf(digest: string): string {
    return join(this.#folder, digest.slice(prefix.length));
  }

  /** Deletes the bytes unless they are needed. In one turn of the event loop: nobody can begin to need them meanwhile. */
  release(digest: string, isNeeded: (digest: string) => boolean): void {
    if (!this.#pins.has(digest) && !isNeeded(digest)) rmSync(this.fileOf(digest), { force: true });
  }
}

async function write(
  path: string,
  source: ObjectSource,
  room: number,
  tooLarge: () => Error,
): Promise<StoredObject> {
  const sum = createHash('sha256');
  let size = 0;
  const handle = await open(path, 'wx', 0o600);
  try {
    for await (const chunk of chunksOf(source)) {
      size += chunk.length;
      if (size > room) throw tooLarge();
      sum.update(chunk);
      await handle.writeFile(chunk);
    }
    await handle.datasync();
  } finally {
    await handle.close();
  }
  return { digest: `${prefix}${sum.digest('hex')}`, size };
}

async function* chunksOf(source: ObjectSource): AsyncIterable<Uint8Array> {
  if (source instanceof Uint8Array) yield source;
  else yield* 'file' in source ? createReadStream(source.file) : source;
}

/** The name of a file is durable when its folder is. */
async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
