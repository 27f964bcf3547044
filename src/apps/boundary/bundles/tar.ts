/** The part of POSIX ustar that bundles use: plain files, one after another, written and read as a stream. */

const blockSize = 512;
/** Larger sizes do not fit into eleven octal digits, and are written as GNU tar does, in binary. */
const largestOctal = 8 ** 11 - 1;

export const paddingOf = (size: number): number => (blockSize - (size % blockSize)) % blockSize;

export const endOfArchive = (): Buffer => Buffer.alloc(2 * blockSize);

/** Owners and modes are fixed, so that a header follows from name, size and time. */
export function tarHeader(name: string, size: number, mtime: number): Buffer {
  if (Buffer.byteLength(name) > 100) throw new Error(`the name ${name} is too long for an archive`);
  const header = Buffer.alloc(blockSize);
  header.write(name, 0, 100, 'utf8');
  header.write('0000644\0', 100, 'latin1');
  header.write('0000000\0', 108, 'latin1');
  header.write('0000000\0', 116, 'latin1');
  if (size <= largestOctal) header.write(`${size.toString(8).padStart(11, '0')}\0`, 124, 'latin1');
  else {
    header[124] = 0x80;
    header.writeBigUInt64BE(BigInt(size), 128);
  }
  header.write(`${mtime.toString(8).padStart(11, '0')}\0`, 136, 'latin1');
  header.write('        ', 148, 'latin1');
  header.write('0', 156, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}

export interface TarEntry {
  readonly name: string;
  readonly size: number;
}

/**
 * Undefined at the end of the archive; a text says what is wrong. A header is only taken if it is, byte for byte, the one that
 * `tarHeader` writes: there is one way to write a bundle.
 */
export function readTarHeader(header: Buffer): TarEntry | undefined | string {
  if (header.every((byte) => byte === 0)) return undefined;
  const field = (start: number, length: number): string =>
    header.toString('utf8', start, start + length).replace(/\0.*$/s, '');
  const name = field(0, 100);
  const size =
    header[124] === 0x80 ? Number(header.readBigUInt64BE(128)) : Number.parseInt(field(124, 12), 8);
  const mtime = Number.parseInt(field(136, 12), 8);
  const areNumbers = [size, mtime].every((number) => Number.isSafeInteger(number) && number >= 0);
  if (!areNumbers || mtime > largestOctal || Buffer.byteLength(name) > 100)
    return 'this is no header of a tar archive';
  return tarHeader(name, size, mtime).equals(header)
    ? { name, size }
    : 'this header was not written by a node';
}
