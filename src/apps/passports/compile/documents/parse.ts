import { itemProblems } from '../compile-input.ts';
import { sha256Hex } from '../hash.ts';
import { atOnce, rowsInASlice, type Slices } from '../rules/slices.ts';
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
import { readingTable } from './table.ts';

export const documentLimits: DocumentLimits = {
  maxBytes: 20 * 1024 * 1024,
  maxRows: 50_000,
  maxProblems: 100,
};

/** All facts of a document, or all that is wrong with it (BPC-2, BPC-3). */
export const parseDocument = (
  input: DocumentInput,
  limits: DocumentLimits = documentLimits,
): ParsedDocument => atOnce(parsingDocument(input, limits));

/** The same in slices. */
export function* parsingDocument(
  { kind, format, bytes }: DocumentInput,
  limits: DocumentLimits = documentLimits,
): Slices<ParsedDocument> {
  const hash = sha256Hex(bytes);
  const problems = new Problems(limits.maxProblems);
  const { columns, valueColumn, keyColumn, fact, whole } = kinds[kind];
  const rowOfKey = new Map<string, number>();
  const facts: Fact[] = [];
  for (const [at, row] of (yield* readingTable({ format, bytes }, columns, limits, problems)).entries()) {
    if (problems.full) break;
    if (at % rowsInASlice === 0) yield;
    const cells = new Cells(row, problems);
    const read = fact(cells);
    if (!read) continue;
    const first = rowOfKey.get(read.key);
    if (first !== undefined)
      cells.wrong(
        keyColumn,
        'DUPLICATE_KEY',
        `"${read.key}" is in row ${first} already; one row says it all`,
      );
    rowOfKey.set(read.key, first ?? row.row);
    facts.push({ ...read, sources: [{ document: hash, row: row.row, column: valueColumn }] });
  }
  if (problems.none) whole?.(facts, problems);
  return problems.none ? { ok: true, hash, facts } : { ok: false, hash, problems: problems.all };
}

const itemColumns = [
  { name: 'serial' },
  { name: 'manufactured_on' },
  { name: 'manufactured_at' },
  { name: 'status', optional: true },
];

export interface ItemsInput {
  readonly format: DocumentFormat;
  readonly bytes: Uint8Array;
}

/** A list of batteries: serial number, month and place of manufacture, status (`original` if there is none). */
export const parseItems = (input: ItemsInput, limits: DocumentLimits = documentLimits): ParsedItems =>
  atOnce(parsingItems(input, limits));

/** The same in slices. */
export function* parsingItems(
  input: ItemsInput,
  limits: DocumentLimits = documentLimits,
): Slices<ParsedItems> {
  const hash = sha256Hex(input.bytes);
  const problems = new Problems(limits.maxProblems);
  const rowOfSerial = new Map<string, number>();
  const items: Item[] = [];
  for (const [at, row] of (yield* readingTable(input, itemColumns, limits, problems)).entries()) {
    if (problems.full) break;
    if (at % rowsInASlice === 0) yield;
    const cells = new Cells(row, problems);
    const [serial, manufacturedOn] = [cells.text('serial'), cells.text('manufactured_on')];
    const manufacturedAt = cells.text('manufactured_at');
    const status = cells.optional('status') === '' ? 'original' : cells.oneOf('status', batteryStatuses);
    if (serial === undefined || manufacturedOn === undefined) continue;
    if (manufacturedAt === undefined || status === undefined) continue;
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
    items.push(item);
  }
  return problems.none ? { ok: true, hash, items } : { ok: false, hash, problems: problems.all };
}
