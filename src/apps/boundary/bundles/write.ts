import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open, rename, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { ReceiptKey } from '../domain/receipt.ts';
import { isAbsent } from '../objects/files.ts';
import { type BundleHeader, type BundleManifest, names, signManifest } from './format.ts';
import { endOfArchive, paddingOf, tarHeader } from './tar.ts';

/** Writes a bundle beside its final name; `finish` signs it, makes it durable, and gives it the name. */
export class BundleWriter {
  readonly #path: string;
  readonly #file: FileHandle;
  readonly #header: BundleHeader;
  readonly #mtime: number;
  readonly #hash = createHash('sha256');

  private constructor(path: string, file: FileHandle, header: BundleHeader) {
    this.#path = path;
    this.#file = file;
    this.#header = header;
    this.#mtime = Math.floor(header.createdAt / 1000);
  }

  static async create(path: string, header: BundleHeader): Promise<BundleWriter> {
    const file = await open(partOf(path), 'w', 0o640);
    const writer = new BundleWriter(path, file, header);
    try {
      await writer.add(names.header, Buffer.from(JSON.stringify(header)));
      return writer;
    } catch (error) {
      await writer.abandon();
      throw error;
    }
  }

  async add(name: string, bytes: Uint8Array): Promise<void> {
    await this.addStream(name, bytes.length, [bytes]);
  }

  async addStream(
    name: string,
    size: number,
    source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<void> {
    await this.#write(tarHeader(name, size, this.#mtime));
    let written = 0;
    for await (const chunk of source) {
      written += chunk.length;
      await this.#write(chunk);
    }
    if (written !== size) throw new Error(`${name} has ${written} bytes, and ${size} were announced`);
    await this.#write(Buffer.alloc(paddingOf(size)));
  }

  async finish(
    end: { readonly lastOffset: number; readonly chain: string },
    key: ReceiptKey,
  ): Promise<BundleManifest> {
    const sha256 = this.#hash.copy().digest('hex');
    const manifest = signManifest({ ...this.#header, ...end, sha256 }, key);
    await this.add(names.manifest, Buffer.from(JSON.stringify(manifest)));
    await this.#write(endOfArchive());
    await this.#file.sync();
    await this.#file.close();
    await rename(partOf(this.#path), this.#path);
    await syncFolder(dirname(this.#path));
    return manifest;
  }

  /** Leaves nothing behind. */
  async abandon(): Promise<void> {
    await this.#file.close().catch(() => {});
    await unlink(partOf(this.#path)).catch((error: unknown) => {
      if (!isAbsent(error)) throw error;
    });
  }

  async #write(bytes: Uint8Array): Promise<void> {
    this.#hash.update(bytes);
    for (let at = 0; at < bytes.length; ) at += (await this.#file.write(bytes, at)).bytesWritten;
  }
}

/** A file of this name is not complete, and no reader takes it for a bundle. */
export const partSuffix = '.part';
const partOf = (path: string): string => `${path}${partSuffix}`;

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
