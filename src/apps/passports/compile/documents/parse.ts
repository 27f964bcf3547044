import { itemProblems } from '../compile-input.ts';
import { sha256Hex } from '../hash.ts';
import {
  type BatteryStatus,
  batteryStatuses,
  type DocumentFormat,
  type DocumentInput,
  type DocumentLimits,
  type Fact,
  type Item,
  type ParsedDocument,
  type ParsedItems,
} from '../types.ts';
import { Cells } from './cells.ts';
import { kinds } from './kinds.ts';
import { Problems } from './problems.ts';
import { readTable } from './table.ts';

export const documentLimits: DocumentLimits = {
  maxBytes: 20 * 1024 * 1024,
  maxRows: 50_000,
  maxProblems: 100,
};

/** All facts of a document, or all that is wrong with it (BPC-2, BPC-3). */
export function parseDocument(
  { kind, format, bytes }: DocumentInput,
  limits: DocumentLimits = documentLimits,
): ParsedDocument {
  const hash = sha256Hex(bytes);
  const problems = new Problems(limits.maxProblems);
  const { columns, valueColumn, keyColumn, fact, whole } = kinds[kind];
  const rowOfKey = new Map<string, number>();
  const facts = readTable({ format, bytes }, columns, limits, problems).flatMap((row): readonly Fact[] => {
    if (problems.full) return [];
    const cells = new Cells(row, problems);
    const read = fact(cells);
    if (!read) return [];
    const first = rowOfKey.get(read.key);
    if (first !== undefined)
      cells.wrong(
        keyColumn,
        'DUPLICATE_KEY',
        `"${read.key}" is in row ${first} already; one row says it all`,
      );
    rowOfKey.set(read.key, first ?? row.row);
    return [{ ...read, sources: [{ document: hash, row: row.row, column: valueColumn }] }];
  });
  if (problems.none) whole?.(facts, problems);
  return problems.none ? { ok: true, hash, facts } : { ok: false, hash, problems: problems.all };
}

const itemColumns = [
  { name: 'serial' },
  { name: 'manufactured_on' },
  { name: 'manufactured_at' },
  { name: 'status', optional: true },
];

/** A list of batteries: serial number, month and place of manufacture, status (`original` if there is none). */
export function parseItems(
  input: { readonly format: DocumentFormat; readonly bytes: Uint8Array },
  limits: DocumentLimits = documentLimits,
): ParsedItems {
  const hash = sha256Hex(input.bytes);
  const problems = new Problems(limits.maxProblems);
  const rowOfSerial = new Map<string, number>();
  const items = readTable(input, itemColumns, limits, problems).flatMap((row): readonly Item[] => {
    if (problems.full) return [];
    const cells = new Cells(row, problems);
    const [serial, manufacturedOn] = [cells.text('serial'), cells.text('manufactured_on')];
    const manufacturedAt = cells.text('manufactured_at');
    const status = cells.optional('status') === '' ? 'original' : cells.oneOf('status', batteryStatuses);
    if (serial === undefined || manufacturedOn === undefined) return [];
    if (manufacturedAt === undefined || status === undefined) return [];
    const item = { serial, manufacturedOn, manufacturedAt, status: status as BatteryStatus };
    for (const problem of itemProblems(item))
      cells.wrong(
        problem.includes('manufacturedOn') ? 'manufactured_on' : 'serial',
        'INVALID_VALUE',
        problem,
      );
    const first = rowOfSerial.get(serial);
    if (first !== undefined)
      cells.wrong('serial', 'DUPLICATE_SERIAL', `the serial number ${serial} is in row ${first} already`);
    rowOfSerial.set(serial, first ?? row.row);
    return [item];
  });
  return problems.none ? { ok: true, hash, items } : { ok: false, hash, problems: problems.all };
}
