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
  const raw = format === 'csv' ? readCsv(text, limits, problems) : readJson(text, problems);
  if (!raw || !checkColumns(raw.columns, columns, problems)) return [];
  const rows: TableRow[] = [];
  for (const { row, values } of raw.rows) {
    if (problems.full) break;
    if (rows.length >= limits.maxRows) {
      problems.add('TOO_MANY_ROWS', row, null, `the file has more than ${limits.maxRows} rows; split it`);
      break;
    }
    if (values.length !== raw.columns.length)
      problems.add(
        'INVALID_VALUE',
        row,
        null,
        `the row has ${values.length} fields, and the first line names ${raw.columns.length} columns`,
      );
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

function readCsv(text: string, { maxRows }: DocumentLimits, problems: Problems): Raw | undefined {
  const [first = ''] = text.split('\n', 1);
  try {
    const records = parse(text, {
      bom: true,
      delimiter: first.includes(';') && !first.includes(',') ? ';' : ',',
      info: true,
      relax_column_count: true,
      skip_empty_lines: true,
      max_record_size: longestRecord,
      // The header, and one more than is allowed: enough to know.
      to: maxRows + 2,
    }) as unknown as readonly { readonly record: string[]; readonly info: { readonly lines: number } }[];
    const [header, ...rows] = records;
    if (!header) {
      problems.add('EMPTY', null, null, 'the file is empty: its first line names the columns');
      return undefined;
    }
    return {
      columns: header.record.map((name) => name.trim()),
      rows: rows.map(({ record, info }) => ({ row: info.lines, values: record })),
    };
  } catch (error) {
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
function readJson(text: string, problems: Problems): Raw | undefined {
  try {
    const parsed = parseJson(text.replace(/^\ufeff/, ''), { numbersAsText: true });
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
    return jsonRows(list as readonly Json[], problems);
  } catch (error) {
    if (!(error instanceof CompileError)) throw error;
    const doubled = error.message.includes('twice');
    problems.add(
      doubled ? 'DOUBLED_COLUMN' : 'NOT_READABLE',
      null,
      null,
      `cannot be read as JSON: ${error.message}`,
    );
    return undefined;
  }
}

function jsonRows(list: readonly Json[], problems: Problems): Raw {
  const columns = [...new Set(list.flatMap((each) => (isObject(each) ? Object.keys(each) : [])))];
  const rows = list.map((each, at) => {
    const row = at + 1;
    if (!isObject(each)) problems.add('INVALID_VALUE', row, null, 'the entry is no object');
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
  return { columns, rows };
}

const isObject = (json: Json | undefined): json is { readonly [key: string]: Json } =>
  typeof json === 'object' && json !== null && !Array.isArray(json);

function checkColumns(found: readonly string[], wanted: readonly Column[], problems: Problems): boolean {
  const names = wanted.map(({ name }) => name);
  for (const [at, name] of found.entries()) {
    if (found.indexOf(name) !== at)
      problems.add('DOUBLED_COLUMN', 1, name, `the column "${name}" is there twice`);
    else if (!names.includes(name))
      problems.add(
        'UNKNOWN_COLUMN',
        1,
        name,
        `there is no column "${name}" in such a document; it has ${names.join(', ')}`,
      );
  }
  for (const { name, optional } of wanted)
    if (!optional && !found.includes(name))
      problems.add(
        'MISSING_COLUMN',
        1,
        name,
        `the column "${name}" is missing; there are ${found.join(', ')}`,
      );
  return problems.none;
}
