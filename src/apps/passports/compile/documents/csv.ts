import { CsvError, parse } from 'csv-parse/browser/esm/sync';
import type { Slices } from '../rules/slices.ts';
import type { Problems } from './problems.ts';

/*
 * CSV in blocks of whole records: the parser has no pause of its own, and a large file would take it a second.
 */

/** A record longer than this means that a closing quote is missing. */
const longestRecord = 64 * 1024;

/** A block ends with the first record after so many bytes. */
const blockBytes = 64 * 1024;

/** A block without such an end holds one record of nothing but separators, or of quotes. */
const longestBlock = blockBytes + 4 * longestRecord;

const [lineFeed, carriageReturn, quote] = [0x0a, 0x0d, 0x22];

export interface CsvRecord {
  /** The line of the file in which it ends. */
  readonly line: number;
  readonly fields: readonly string[];
}

/** Takes records; each answers whether it wants more. */
export interface CsvReader {
  /** The first record; undefined if there is none. */
  readonly header: (fields: readonly string[] | undefined) => boolean;
  readonly record: (record: CsvRecord) => boolean;
}

/** Stops the parser. */
const enough = new Error('no more records are wanted');

/**
 * Reads the first `most` records, the header among them. False: the reader wanted no more, or it is no CSV, which is added to the
 * problems. The parser gets bytes: it would make a list of numbers of a text, which takes eight times the memory.
 */
export function* readingCsv(
  bytes: Uint8Array,
  delimiter: ',' | ';',
  most: number,
  reader: CsvReader,
  problems: Problems,
): Slices<boolean> {
  const options = {
    delimiter,
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: longestRecord,
  } as const;
  let before = 0;
  let read = 0;
  try {
    const [header] = parse(bytes, { ...options, to: 1 }) as readonly string[][];
    if (!reader.header(header)) return false;
    const end = endOfRecords(bytes);
    for (const block of blocksOf(bytes, end)) {
      before = block.linesBefore;
      parse(block.bytes, {
        ...options,
        record_delimiter: end,
        to: most - read,
        // Nothing is kept here: 20 MiB of commas would be a gigabyte of empty cells.
        on_record: (fields: string[], { lines }: { readonly lines: number }) => {
          read += 1;
          if (read > 1 && !reader.record({ line: before + lines, fields })) throw enough;
          return null;
        },
      });
      if (read >= most) break;
      if (block.isCut) throw new CsvError('CSV_MAX_RECORD_SIZE', `a record after line ${before} is too long`);
      yield;
    }
    return true;
  } catch (error) {
    if (error === enough) return false;
    if (!(error instanceof CsvError)) throw error;
    const line = Number(error.lines ?? 1) || 1;
    // It counts the lines of its block.
    const message = error.message.replace(/\bat line \d+/, `at line ${before + line}`);
    problems.add('NOT_READABLE', before + line, null, `cannot be read as CSV: ${message}`);
    return false;
  }
}

/** What ends the records: what ends the first one. */
function endOfRecords(bytes: Uint8Array): '\n' | '\r' | '\r\n' {
  let isQuoted = false;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (byte === quote) isQuoted = !isQuoted;
    else if (isQuoted) continue;
    else if (byte === lineFeed) return '\n';
    else if (byte === carriageReturn) return bytes[at + 1] === lineFeed ? '\r\n' : '\r';
  }
  return '\n';
}

interface Block {
  readonly bytes: Uint8Array;
  readonly linesBefore: number;
  /** It ends in the middle of a record. */
  readonly isCut: boolean;
}

/**
 * Until the parser finds something wrong, a line ends a record exactly if the quotes before it are paired: it takes a quote
 * nowhere but around a field, and doubled within. Counts lines as the parser does: row numbers are in facts.
 */
function* blocksOf(bytes: Uint8Array, end: '\n' | '\r' | '\r\n'): Iterable<Block> {
  const lastOfEnd = end === '\r' ? carriageReturn : lineFeed;
  let [start, lines, linesBefore] = [0, 0, 0];
  let isQuoted = false;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (byte === quote) isQuoted = !isQuoted;
    else if (byte === lineFeed || byte === carriageReturn) {
      const isSecond = end === '\r\n' && byte === lineFeed && !isQuoted && bytes[at - 1] === carriageReturn;
      if (!isSecond) lines += 1;
      const isEnd = !isQuoted && (end === '\r\n' ? isSecond : byte === lastOfEnd);
      if (isEnd && at + 1 - start >= blockBytes) {
        yield { bytes: bytes.subarray(start, at + 1), linesBefore, isCut: false };
        [start, linesBefore] = [at + 1, lines];
      }
    }
    if (at - start >= longestBlock) {
      yield { bytes: bytes.subarray(start, at), linesBefore, isCut: true };
      return;
    }
  }
  if (start < bytes.length) yield { bytes: bytes.subarray(start), linesBefore, isCut: false };
}
