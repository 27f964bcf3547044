import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { BadBundle } from './format.ts';
import { paddingOf, readTarHeader, type TarEntry } from './tar.ts';

const chunkBytes = 256 * 1024;
const blockSize = 512;

/** Reads the entries of a bundle one after another, and hashes every byte as it goes by. */
export class BundleFile {
  readonly #file: FileHandle;
  readonly #hash: Hash = createHash('sha256');
  #position = 0;
  #before: Hash = createHash('sha256');
  /** The entry that is being read, for errors. */
  #entry = 'the beginning';
  #size = 0;
  /** The position behind it. */
  #end = 0;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async open(path: string): Promise<BundleFile> {
    return new BundleFile(await open(path, 'r'));
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  /** Where the reader is. */
  get place(): string {
    return `byte ${this.#position} (${this.#entry})`;
  }

  /** SHA-256 over everything before the entry that `next` returned last. */
  get digestBefore(): string {
    return this.#before.copy().digest('hex');
  }

  /** The next entry; what was not read of the one before is passed over. Undefined: the archive ends. */
  async next(): Promise<TarEntry | undefined> {
    while (this.#position < this.#end) await this.#some(this.#end - this.#position);
    await this.#requireZeros(paddingOf(this.#size), 'the padding behind it');
    this.#before = this.#hash.copy();
    const at = `byte ${this.#position}`;
    const found = readTarHeader(await this.#exactly(blockSize));
    if (typeof found === 'string') throw new BadBundle(at, found);
    if (!found) {
      this.#entry = 'the end';
      this.#size = 0;
      return undefined;
    }
    this.#entry = found.name;
    this.#size = found.size;
    this.#end = this.#position + found.size;
    return found;
  }

  /** The whole entry, which must not be larger than this. */
  async whole(most: number): Promise<Buffer> {
    const size = this.#end - this.#position;
    if (size > most) throw new BadBundle(this.place, `it has ${size} bytes; the limit is ${most}`);
    return this.#exactly(size);
  }

  /** What was not read of the entry yet. */
  async *rest(): AsyncGenerator<Uint8Array> {
    while (this.#position < this.#end) yield await this.#some(this.#end - this.#position);
  }

  /** After the archive's last entry: a second block of zeros, and nothing else. */
  async requireEnd(): Promise<void> {
    await this.#requireZeros(blockSize, 'the end of the archive');
    const { bytesRead } = await this.#file.read(Buffer.alloc(1), 0, 1, this.#position);
    if (bytesRead > 0) throw new BadBundle(this.place, 'something follows the end of the archive');
  }

  async #requireZeros(count: number, what: string): Promise<void> {
    const at = this.place;
    if ((await this.#exactly(count)).some((byte) => byte !== 0))
      throw new BadBundle(at, `${what} is not empty`);
  }

  async #exactly(count: number): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    for (let left = count; left > 0; ) {
      const part = await this.#some(left);
      parts.push(part);
      left -= part.length;
    }
    return Buffer.concat(parts);
  }

  async #some(most: number): Promise<Uint8Array> {
    const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, most));
    const { bytesRead } = await this.#file.read(buffer, 0, buffer.length, this.#position);
    if (bytesRead === 0)
      throw new BadBundle(this.place, 'the file ends here: it was cut off', undefined, true);
    const part = buffer.subarray(0, bytesRead);
    this.#hash.update(part);
    this.#position += bytesRead;
    return part;
  }
}
