import { CsvError, parse } from 'csv-parse/browser/esm/sync';
import { CompileError } from '../errors.ts';
import { parseJson } from '../json.ts';
import type { DocumentFormat, DocumentLimits, Json } from '../types.ts';
import type { Problems } from './problems.ts';

/*
 * The bytes of a document as rows of named cells, with everything wrong that one can say before knowing what it is about:
 * size, encoding, syntax, columns.
 */

export interface Column {
  readonly name: string;
  readonly optional?: boolean;
}

export interface TableRow {
  readonly row: number;
  readonly cells: ReadonlyMap<string, string>;
}

interface Raw {
  readonly columns: readonly string[];
  readonly rows: Iterable<{ readonly row: number; readonly values: readonly string[] }>;
}

/** A record longer than this means that a closing quote is missing. */
const longestRecord = 64 * 1024;

/** Far more than any kind of document has. Each row costs time and memory for each column, so the columns are counted first. */
const mostColumns = 200;

/** Values of a JSON document for each row that is allowed: its cells, and the elements of lists in them. */
const mostValuesPerRow = 40;

export function readTable(
  { format, bytes }: { readonly format: DocumentFormat; readonly bytes: Uint8Array },
  columns: readonly Column[],
  limits: DocumentLimits,
  problems: Problems,
): readonly TableRow[] {
  if (bytes.length > limits.maxBytes) {
    problems.add(
      'TOO_LARGE',
      null,
      null,
      `the file has ${bytes.length} bytes; ${limits.maxBytes} are allowed`,
    );
    return [];
  }
  const text = decode(bytes, problems);
  if (text === undefined) return [];
  const raw =
    format === 'csv'
      ? readCsv(withoutMark(bytes), text, columns, limits, problems)
      : readJson(text, columns, limits, problems);
  if (!raw) return [];
  const rows: TableRow[] = [];
  for (const { row, values } of raw.rows) {
    if (problems.full) break;
    if (rows.length >= limits.maxRows) {
      problems.add('TOO_MANY_ROWS', row, null, `the file has more than ${limits.maxRows} rows; split it`);
      break;
    }
    rows.push({ row, cells: new Map(raw.columns.map((name, at) => [name, (values[at] ?? '').trim()])) });
  }
  if (rows.length === 0 && problems.none) problems.add('EMPTY', null, null, 'the file has no rows');
  return rows;
}

function decode(bytes: Uint8Array, problems: Problems): string | undefined {
  if ((bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)) {
    problems.add('WRONG_ENCODING', 1, null, 'the file is UTF-16; save it as UTF-8');
    return undefined;
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const { row, column, character } = firstWrongByte(bytes);
    problems.add(
      'WRONG_ENCODING',
      row,
      column,
      `the file is not UTF-8: there is a byte ${character} that cannot be read. Save it as UTF-8`,
    );
    return undefined;
  }
}

/** The row, and the column by counting separators: good enough to find it, in a file that cannot be read. */
function firstWrongByte(bytes: Uint8Array): {
  readonly row: number;
  readonly column: string | null;
  readonly character: string;
} {
  const strict = new TextDecoder('utf-8', { fatal: true });
  let header: string | undefined;
  for (let start = 0, row = 1; start < bytes.length; row++) {
    const newline = bytes.indexOf(0x0a, start);
    const line = bytes.subarray(start, newline === -1 ? bytes.length : newline);
    try {
      header ??= strict.decode(line);
    } catch {}
    const wrong = wrongByte(line);
    if (wrong !== undefined) {
      const before = new TextDecoder().decode(line.subarray(0, wrong));
      const names = (header ?? '').split(/[,;]/);
      const column = names[before.split(/[,;]/).length - 1]?.trim() || null;
      return { row, column, character: `0x${(line[wrong] ?? 0).toString(16)}` };
    }
    start += line.length + 1;
  }
  return { row: 1, column: null, character: '?' };
}

/** Where a line stops being UTF-8: the lenient decoder puts U+FFFD there. */
function wrongByte(line: Uint8Array): number | undefined {
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(line);
  const at = text.indexOf('\ufffd');
  if (at === -1) return undefined;
  return new TextEncoder().encode(text.slice(0, at)).length;
}

/** Without the byte order mark. */
const withoutMark = (bytes: Uint8Array): Uint8Array =>
  bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;

/** Stops the parser: what is wrong with more rows would not be told. */
const enough = new Error('there are problems enough');

/**
 * The columns are checked before any row is read. The parser gets bytes: it would make a list of numbers of a text, which takes
 * eight times the memory.
 */
function readCsv(
  bytes: Uint8Array,
  text: string,
  wanted: readonly Column[],
  { maxRows }: DocumentLimits,
  problems: Problems,
): Raw | undefined {
  const [first = ''] = text.split('\n', 1);
  const options = {
    delimiter: first.includes(';') && !first.includes(',') ? ';' : ',',
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: longestRecord,
  } as const;
  try {
    const [header] = parse(bytes, { ...options, to: 1 }) as readonly string[][];
    if (!header) {
      problems.add('EMPTY', null, null, 'the file is empty: its first line names the columns');
      return undefined;
    }
    const columns = header.map((name) => name.trim());
    if (!checkColumns(columns, wanted, problems)) return undefined;
    const rows: { readonly row: number; readonly values: readonly string[] }[] = [];
    let isHeader = true;
    parse(bytes, {
      ...options,
      // The header, and one more than is allowed: enough to know.
      to: maxRows + 2,
      // A row is kept as it is read, cut to its columns: 20 MiB of commas would be a gigabyte of empty cells.
      on_record: (record: string[], { lines }: { readonly lines: number }) => {
        if (isHeader) {
          isHeader = false;
          return null;
        }
        if (problems.full) throw enough;
        if (record.length !== columns.length)
          problems.add(
            'INVALID_VALUE',
            lines,
            null,
            `the row has ${record.length} fields, and the first line names ${columns.length} columns`,
          );
        rows.push({ row: lines, values: record.slice(0, columns.length) });
        return null;
      },
    });
    return { columns, rows };
  } catch (error) {
    if (error === enough) return undefined;
    if (!(error instanceof CsvError)) throw error;
    problems.add(
      'NOT_READABLE',
      Number(error.lines ?? 1) || 1,
      null,
      `cannot be read as CSV: ${error.message}`,
    );
    return undefined;
  }
}

/** A list of objects with the columns as keys, or an object `{ "rows": [...] }`. Numbers keep their digits. */
function readJson(
  text: string,
  wanted: readonly Column[],
  { maxRows }: DocumentLimits,
  problems: Problems,
): Raw | undefined {
  try {
    const parsed = parseJson(text.replace(/^\ufeff/, ''), {
      numbersAsText: true,
      limits: { elements: maxRows + 1, keys: mostColumns, values: (maxRows + 1) * mostValuesPerRow },
    });
    const list = isObject(parsed) && Array.isArray(parsed.rows) ? parsed.rows : parsed;
    if (!Array.isArray(list)) {
      problems.add(
        'NOT_READABLE',
        null,
        null,
        'the JSON must be a list of objects, or an object with a list "rows"',
      );
      return undefined;
    }
    return jsonRows(list as readonly Json[], wanted, problems);
  } catch (error) {
    if (!(error instanceof CompileError)) throw error;
    const { limit } = error.details;
    if (limit === 'keys') addTooManyColumns(wanted, problems);
    else if (limit !== undefined)
      problems.add(
        'TOO_MANY_ROWS',
        limit === 'elements' ? maxRows + 1 : null,
        null,
        `the file has more than ${maxRows} rows, or too many values in them; split it`,
      );
    else
      problems.add(
        error.message.includes('twice') ? 'DOUBLED_COLUMN' : 'NOT_READABLE',
        null,
        null,
        `cannot be read as JSON: ${error.message}`,
      );
    return undefined;
  }
}

/** The keys of all entries are checked before a row is made of any. */
function jsonRows(list: readonly Json[], wanted: readonly Column[], problems: Problems): Raw | undefined {
  for (const [at, each] of list.entries()) {
    if (problems.full) break;
    if (!isObject(each)) problems.add('INVALID_VALUE', at + 1, null, 'the entry is no object');
  }
  const columns = keysOf(list);
  if (!checkColumns(columns, wanted, problems)) return undefined;
  const rows = list.map((each, at) => {
    const row = at + 1;
    const values = columns.map((name) => {
      const value = isObject(each) ? each[name] : undefined;
      if (value === undefined || value === null) return '';
      if (typeof value === 'string') return value;
      if (typeof value === 'boolean') return value ? 'yes' : 'no';
      if (Array.isArray(value) && value.every((part) => typeof part === 'string')) return value.join(';');
      problems.add(
        'INVALID_VALUE',
        row,
        name,
        'the value is neither text, number, boolean nor a list of texts',
      );
      return '';
    });
    return { row, values };
  });
  return problems.none ? { columns, rows } : undefined;
}

/** Stops as soon as there are too many. */
function keysOf(list: readonly Json[]): readonly string[] {
  const found = new Set<string>();
  for (const each of list) {
    if (!isObject(each)) continue;
    for (const name in each) {
      found.add(name);
      if (found.size > mostColumns) return [...found];
    }
  }
  return [...found];
}

const isObject = (json: Json | undefined): json is { readonly [key: string]: Json } =>
  typeof json === 'object' && json !== null && !Array.isArray(json);

const addTooManyColumns = (wanted: readonly Column[], problems: Problems): void =>
  problems.add(
    'TOO_MANY_COLUMNS',
    1,
    null,
    `the file has more than ${mostColumns} columns; such a document has ${wanted.map(({ name }) => name).join(', ')}`,
  );

function checkColumns(found: readonly string[], wanted: readonly Column[], problems: Problems): boolean {
  const names = wanted.map(({ name }) => name);
  if (found.length > mostColumns) {
    addTooManyColumns(wanted, problems);
    return false;
  }
  const seen = new Set<string>();
  for (const name of found) {
    if (seen.has(name)) problems.add('DOUBLED_COLUMN', 1, name, `the column "${name}" is there twice`);
    else if (!names.includes(name))
      problems.add(
        'UNKNOWN_COLUMN',
        1,
        name,
        `there is no column "${name}" in such a document; it has ${names.join(', ')}`,
      );
    seen.add(name);
  }
  for (const { name, optional } of wanted)
    if (!optional && !seen.has(name))
      problems.add(
        'MISSING_COLUMN',
        1,
        name,
        `the column "${name}" is missing; there are ${found.join(', ')}`,
      );
  return problems.none;
}
