/*
 * A tar archive (POSIX ustar) of small files: every system opens it, and the same files give the same bytes. Owners, times
 * and modes are fixed.
 */

export interface TarFile {
  readonly path: string;
  readonly bytes: Uint8Array;
}

const blockSize = 512;

export function tarOf(files: readonly TarFile[]): Uint8Array {
  const blocks = files.flatMap(({ path, bytes }) => [
    headerOf(path, bytes.length),
    bytes,
    Buffer.alloc((blockSize - (bytes.length % blockSize)) % blockSize),
  ]);
  return Buffer.concat([...blocks, Buffer.alloc(2 * blockSize)]);
}

function headerOf(path: string, size: number): Buffer {
  const [prefix, name] = splitPath(path);
  const header = Buffer.alloc(blockSize);
  header.write(name, 0, 100, 'utf8');
  header.write('0000644\0', 100, 'latin1');
  header.write('0000000\0', 108, 'latin1');
  header.write('0000000\0', 116, 'latin1');
  header.write(`${size.toString(8).padStart(11, '0')}\0`, 124, 'latin1');
  header.write('00000000000\0', 136, 'latin1');
  header.write('        ', 148, 'latin1');
  header.write('0', 156, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  header.write(prefix, 345, 155, 'utf8');
  header.write(`${checksum(header).toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}

/** Up to 100 bytes of name, and up to 155 of folders before it. */
function splitPath(path: string): readonly [prefix: string, name: string] {
  if (Buffer.byteLength(path) <= 100) return ['', path];
  for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)];
    if (Buffer.byteLength(prefix) <= 155 && Buffer.byteLength(name) <= 100) return [prefix, name];
  }
  throw new Error(`the path ${path} is too long for an archive`);
}

/** The sum of all bytes, those of the checksum itself counted as spaces. */
const checksum = (header: Uint8Array): number =>
  header.reduce((sum, byte, at) => sum + (at >= 148 && at < 156 ? 32 : byte), 0);

/** Files by path, or what is wrong with the archive. */
export function untar(bytes: Uint8Array): ReadonlyMap<string, Uint8Array> | string {
  const files = new Map<string, Uint8Array>();
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at + blockSize <= all.length; ) {
    const header = all.subarray(at, at + blockSize);
    if (header.every((byte) => byte === 0)) return files;
    const field = (start: number, length: number): string =>
      header.toString('utf8', start, start + length).replace(/\0.*$/s, '');
    const size = Number.parseInt(field(124, 12), 8);
    if (Number.parseInt(field(148, 8), 8) !== checksum(header) || !Number.isSafeInteger(size) || size < 0)
      return 'is no tar archive';
    if (header[156] !== 0x30) return 'has something else than files in it';
    const prefix = field(345, 155);
    const path = prefix === '' ? field(0, 100) : `${prefix}/${field(0, 100)}`;
    const start = at + blockSize;
    if (start + size > all.length) return `ends in the middle of ${path}`;
    if (files.has(path)) return `has ${path} twice`;
    files.set(path, all.subarray(start, start + size));
    at = start + Math.ceil(size / blockSize) * blockSize;
  }
  return 'is no whole tar archive';
}
