import { CompileError } from '../errors.ts';
import { parsingJson } from '../json.ts';
import { rowsInASlice, type Slices } from '../rules/slices.ts';
import type { DocumentFormat, DocumentLimits, Json } from '../types.ts';
import { readingCsv } from './csv.ts';
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

/** Far more than any kind of document has. Each row costs time and memory for each column, so the columns are counted first. */
const mostColumns = 200;

/** Values of a JSON document for each row that is allowed: its cells, and the elements of lists in them. */
const mostValuesPerRow = 40;

export function* readingTable(
  { format, bytes }: { readonly format: DocumentFormat; readonly bytes: Uint8Array },
  columns: readonly Column[],
  limits: DocumentLimits,
  problems: Problems,
): Slices<readonly TableRow[]> {
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
  yield;
  const raw = yield* format === 'csv'
    ? readingCsvRows(withoutMark(bytes), text, columns, limits, problems)
    : readingJson(text, columns, limits, problems);
  if (!raw) return [];
  const rows: TableRow[] = [];
  for (const { row, values } of raw.rows) {
    if (problems.full) break;
    if (rows.length >= limits.maxRows) {
      problems.add('TOO_MANY_ROWS', row, null, `the file has more than ${limits.maxRows} rows; split it`);
      break;
    }
    if (rows.length % rowsInASlice === 0) yield;
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
  const from = startOfWrongBlock(bytes);
  let row = 1;
  for (let at = bytes.indexOf(0x0a); at !== -1 && at < from; at = bytes.indexOf(0x0a, at + 1)) row += 1;
  for (let start = from; start < bytes.length; row++) {
    const line = lineAt(bytes, start);
    const wrong = wrongByte(line);
    if (wrong !== undefined) {
      const column = columnAt(lineAt(bytes, 0), line.subarray(0, wrong));
      return { row, column, character: `0x${(line[wrong] ?? 0).toString(16)}` };
    }
    start += line.length + 1;
  }
  return { row: 1, column: null, character: '?' };
}

/** The start of a line from which on the wrong byte is near: to decode each line of a large file by itself would take a minute. */
function startOfWrongBlock(bytes: Uint8Array): number {
  const blockBytes = 64 * 1024;
  const strict = new TextDecoder('utf-8', { fatal: true });
  let at = 0;
  try {
    for (; at < bytes.length; at += blockBytes)
      strict.decode(bytes.subarray(at, at + blockBytes), { stream: true });
  } catch {}
  // A character can begin up to three bytes before the block in which it turns out to be none.
  return at < 4 ? 0 : bytes.lastIndexOf(0x0a, Math.min(at, bytes.length) - 4) + 1;
}

const lineAt = (bytes: Uint8Array, start: number): Uint8Array => {
  const newline = bytes.indexOf(0x0a, start);
  return bytes.subarray(start, newline === -1 ? bytes.length : newline);
};

/** The name in the first line that has as many separators before it. */
function columnAt(header: Uint8Array, before: Uint8Array): string | null {
  let at = 0;
  for (const byte of before) if (byte === 0x2c || byte === 0x3b) at += 1;
  if (at >= mostColumns) return null;
  try {
    const names = new TextDecoder('utf-8', { fatal: true }).decode(header).split(/[,;]/, at + 1);
    return names[at]?.trim() || null;
  } catch {
    return null;
  }
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

/** The columns are checked before any row is read. A row is kept as it is read, cut to its columns. */
function* readingCsvRows(
  bytes: Uint8Array,
  text: string,
  wanted: readonly Column[],
  { maxRows }: DocumentLimits,
  problems: Problems,
): Slices<Raw | undefined> {
  const [first = ''] = text.split('\n', 1);
  const delimiter = first.includes(';') && !first.includes(',') ? ';' : ',';
  const rows: { readonly row: number; readonly values: readonly string[] }[] = [];
  let columns: readonly string[] = [];
  const isRead = yield* readingCsv(
    bytes,
    delimiter,
    // The header, and one more than is allowed: enough to know.
    maxRows + 2,
    {
      header: (fields) => {
        if (!fields) problems.add('EMPTY', null, null, 'the file is empty: its first line names the columns');
        columns = fields?.map((name) => name.trim()) ?? [];
        return fields !== undefined && checkColumns(columns, wanted, problems);
      },
      record: ({ line, fields }) => {
        // What is wrong with more rows would not be told.
        if (problems.full) return false;
        if (fields.length !== columns.length)
          problems.add(
            'INVALID_VALUE',
            line,
            null,
            `the row has ${fields.length} fields, and the first line names ${columns.length} columns`,
          );
        rows.push({ row: line, values: fields.slice(0, columns.length) });
        return true;
      },
    },
    problems,
  );
  return isRead ? { columns, rows } : undefined;
}

/** A list of objects with the columns as keys, or an object `{ "rows": [...] }`. Numbers keep their digits. */
function* readingJson(
  text: string,
  wanted: readonly Column[],
  { maxRows }: DocumentLimits,
  problems: Problems,
): Slices<Raw | undefined> {
  try {
    const parsed = yield* parsingJson(text.replace(/^\ufeff/, ''), {
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
    return yield* readingEntries(list as readonly Json[], wanted, problems);
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
function* readingEntries(
  list: readonly Json[],
  wanted: readonly Column[],
  problems: Problems,
): Slices<Raw | undefined> {
  for (const [at, each] of list.entries()) {
    if (problems.full) break;
    if (!isObject(each)) problems.add('INVALID_VALUE', at + 1, null, 'the entry is no object');
  }
  yield;
  const columns = yield* collectingKeys(list);
  if (!checkColumns(columns, wanted, problems)) return undefined;
  const rows: { readonly row: number; readonly values: readonly string[] }[] = [];
  for (const [at, each] of list.entries()) {
    if (at % rowsInASlice === 0) yield;
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
    rows.push({ row, values });
  }
  return problems.none ? { columns, rows } : undefined;
}

/** Stops as soon as there are too many. */
function* collectingKeys(list: readonly Json[]): Slices<readonly string[]> {
  const found = new Set<string>();
  for (const [at, each] of list.entries()) {
    if (at % rowsInASlice === 0) yield;
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
