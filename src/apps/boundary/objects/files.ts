import { createHash, type Hash, randomUUID } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import {
  type FileHandle,
  link,
  mkdir,
  open,
  opendir,
  readdir,
  rename,
  stat,
  unlink,
  utimes,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { BoundaryError } from '../domain/errors.ts';
import {
  type Blobs,
  hexOf,
  LostBytes,
  objectTooLarge,
  type Staged,
  type StageOptions,
  wrongStart,
} from './blobs.ts';

/**
 * Blobs as files of one disk:
 *
 *   blobs/ab/cd/<sha256>       complete, durable, never changed
 *   uploads/<id>.<uuid>.busy   being written by one process
 *   uploads/<id>.part          broken off; may be continued
 *   removing/<sha256>.<uuid>   on its way out, or back in if it turns out to be needed
 *
 * A file gets its name by `link` once its bytes are on the disk, so that a name always stands for all of its bytes.
 */
export class FileBlobs implements Blobs {
  readonly #root: string;

  private constructor(root: string) {
    this.#root = root;
  }

  /** Makes the folders, and puts back what a process left behind that died while it removed something. */
  static async open(root: string): Promise<FileBlobs> {
    const blobs = new FileBlobs(root);
    for (const folder of ['blobs', 'uploads', 'removing'])
      await mkdir(join(root, folder), { recursive: true });
    await blobs.#restore();
    return blobs;
  }

  get trouble(): undefined {
    return undefined;
  }

  async stop(): Promise<void> {}

  async stage(source: AsyncIterable<Uint8Array>, { maxBytes, resume }: StageOptions): Promise<Staged> {
    const path = join(this.#root, 'uploads', `${resume?.uploadId ?? ''}.${randomUUID()}.busy`);
    const hash = createHash('sha256');
    const { file, size: before } = await this.#begin(path, resume, hash);
    let size = before;
    try {
      for await (const chunk of source) {
        size += chunk.length;
        if (size > maxBytes) throw objectTooLarge(maxBytes);
        hash.update(chunk);
        await writeAll(file, chunk);
      }
      await file.datasync();
    } catch (error) {
      await file.close();
      await this.#giveUp(path, error instanceof BoundaryError ? undefined : resume?.uploadId);
      throw error;
    }
    await file.close();
    const hex = hash.digest('hex');
    return {
      digest: `sha256:${hex}`,
      size,
      publish: () => this.#publish(path, hex),
      discard: () => unlinkIfThere(path),
    };
  }

  async staged(uploadId: string): Promise<number> {
    const found = await statIfThere(this.#part(uploadId));
    return found?.size ?? 0;
  }

  async *read(
    digest: string,
    { from, count }: { readonly from: number; readonly count: number },
  ): AsyncIterable<Uint8Array> {
    const file = await this.#open(hexOf(digest));
    try {
      if (count > 0) yield* file.createReadStream({ start: from, end: from + count - 1, autoClose: false });
    } finally {
      await file.close();
    }
  }

  async has(digest: string): Promise<boolean> {
    return (await statIfThere(this.#path(hexOf(digest)))) !== undefined;
  }

  async *olderThan(time: Date): AsyncIterable<string> {
    for await (const entry of await opendir(join(this.#root, 'blobs'), { recursive: true })) {
      if (!entry.isFile()) continue;
      const found = await statIfThere(join(entry.parentPath, entry.name));
      if (found && found.mtime < time) yield `sha256:${entry.name}`;
    }
  }

  async remove(digest: string, isNeeded: () => Promise<boolean>): Promise<boolean> {
    const hex = hexOf(digest);
    const aside = join(this.#root, 'removing', `${hex}.${randomUUID()}`);
    try {
      await rename(this.#path(hex), aside);
    } catch (error) {
      if (isAbsent(error)) return false;
      throw error;
    }
    let needed = true;
    try {
      needed = await isNeeded();
    } finally {
      if (needed) await this.#putBack(aside, hex);
      else await unlinkIfThere(aside);
    }
    return !needed;
  }

  async sweep(before: Date): Promise<number> {
    let swept = 0;
    for await (const { name } of await opendir(join(this.#root, 'uploads'))) {
      const path = join(this.#root, 'uploads', name);
      const found = await statIfThere(path);
      if (!found || found.mtime >= before) continue;
      await unlinkIfThere(path);
      swept += 1;
    }
    return swept;
  }

  /** A blob that got a name while it was being removed is put back in a moment. */
  async #open(hex: string): Promise<FileHandle> {
    let mayComeBack = true;
    for (let attempt = 1; ; attempt++) {
      try {
        return await open(this.#path(hex), constants.O_RDONLY);
      } catch (error) {
        if (!isAbsent(error)) throw error;
        if (!mayComeBack || attempt === 20) throw await this.#lost(hex, error);
        mayComeBack = await this.#isBeingRemoved(hex);
        await sleep(50);
      }
    }
  }

  async #isBeingRemoved(hex: string): Promise<boolean> {
    return (await readdir(join(this.#root, 'removing'))).some((name) => name.startsWith(hex));
  }

  /** Without any file it is the disk that is missing, and not this one file. */
  async #lost(hex: string, cause: unknown): Promise<Error> {
    const blobs = join(this.#root, 'blobs');
    const there = await readdir(blobs).catch(() => []);
    if (there.length > 0) return new LostBytes(`the file ${this.#path(hex)} is gone`, { cause });
    return new Error(
      `the folder ${blobs} is gone or empty: see that the disk with the objects of this node is mounted. If it is lost, restore the ` +
        'folder from a backup, or put the objects again.',
      { cause },
    );
  }

  /** Takes over what was kept of an upload, by a rename: of two that continue it, one does. */
  async #begin(
    path: string,
    resume: StageOptions['resume'],
    hash: Hash,
  ): Promise<{ file: FileHandle; size: number }> {
    if (!resume || resume.from === 0) {
      if (resume) await unlinkIfThere(this.#part(resume.uploadId));
      const flags = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY;
      return { file: await open(path, flags, 0o640), size: 0 };
    }
    const kept = await this.staged(resume.uploadId);
    if (kept !== resume.from) throw wrongStart(resume, kept);
    try {
      await rename(this.#part(resume.uploadId), path);
    } catch (error) {
      throw isAbsent(error) ? wrongStart(resume, 0) : error;
    }
    for await (const chunk of createReadStream(path)) hash.update(chunk);
    return { file: await open(path, constants.O_WRONLY | constants.O_APPEND), size: kept };
  }

  /** An attempt that began anew may break off before an earlier one, whose end was noticed later: the longer one is kept. */
  async #giveUp(path: string, uploadId: string | undefined): Promise<void> {
    const isKept = uploadId !== undefined && (await stat(path)).size >= (await this.staged(uploadId));
    if (isKept) await rename(path, this.#part(uploadId));
    else await unlinkIfThere(path);
  }

  /** Replaces a file that is there: it is as new then, and whole again if it was damaged. Its readers keep the one they opened. */
  async #publish(staged: string, hex: string): Promise<void> {
    const path = this.#path(hex);
    await this.#makeFolders(path);
    try {
      await link(staged, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      await utimes(staged, new Date(), new Date());
      await rename(staged, path);
    }
    await syncFolder(dirname(path));
  }

  /** Another process of the node that starts may have done it before, or its remover may have ended. */
  async #putBack(aside: string, hex: string): Promise<void> {
    await this.#makeFolders(this.#path(hex));
    try {
      await link(aside, this.#path(hex));
    } catch (error) {
      if (isAbsent(error)) return;
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    await syncFolder(dirname(this.#path(hex)));
    await unlinkIfThere(aside);
  }

  async #restore(): Promise<void> {
    for await (const { name } of await opendir(join(this.#root, 'removing')))
      await this.#putBack(join(this.#root, 'removing', name), name.split('.')[0] ?? '');
  }

  async #makeFolders(path: string): Promise<void> {
    const folder = dirname(path);
    const first = await mkdir(folder, { recursive: true });
    if (first === undefined) return;
    // A new folder is an entry in the one above it, and that one may be new, too.
    await syncFolder(dirname(folder));
    await syncFolder(dirname(dirname(folder)));
  }

  #path(hex: string): string {
    return join(this.#root, 'blobs', hex.slice(0, 2), hex.slice(2, 4), hex);
  }

  #part(uploadId: string): string {
    return join(this.#root, 'uploads', `${uploadId}.part`);
  }
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length; ) at += (await file.write(chunk, at)).bytesWritten;
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

export const isAbsent = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT';

async function unlinkIfThere(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!isAbsent(error)) throw error;
  }
}

async function statIfThere(path: string) {
  try {
    return await stat(path);
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}
