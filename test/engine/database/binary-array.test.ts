import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { binaryTextArray, bytesArray, timeArray } from '../../../src/engine/database/binary-array.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { emptyDatabase } from '../../support/postgres.ts';

let database: Database;
let drop: () => Promise<void>;
beforeAll(async () => {
  const empty = await emptyDatabase();
  drop = empty.drop;
  database = await Database.connect({ url: empty.url, poolSize: 1 });
});
afterAll(async () => {
  await database.close();
  await drop();
});

/** What PostgreSQL makes of an array. */
async function read(type: string, array: Buffer | null): Promise<unknown> {
  const { rows } = await database.query<{ given: unknown }>(`select to_json($1::${type}[]) as given`, [
    array,
  ]);
  return rows[0]?.given;
}

test('RFID-6: times arrive to the microsecond, before and after 2000, and nulls in their places', async () => {
  const instants = [
    '2026-03-01T09:30:00.123456Z',
    '2000-01-01T00:00:00.000000Z',
    '1999-12-31T23:59:59.999999Z',
    '1970-01-01T00:00:00.000001Z',
    '2254-12-31T23:59:59.999999Z',
  ];
  const micros = instants.map((text) => Date.parse(text) * 1000 + Number(text.slice(23, 26)));
  const { rows } = await database.query<{ same: boolean }>(
    'select $1::timestamptz[] = $2::timestamptz[] as same',
    [timeArray([null, ...micros, null]), [null, ...instants, null]],
  );
  expect(rows[0]?.same).toBe(true);
});

test('bytes arrive as they are', async () => {
  const hashes = ['00'.repeat(32), 'ff'.repeat(32), `0a80${'7f'.repeat(30)}`];
  expect(await read('bytea', bytesArray(hashes))).toEqual(hashes.map((hex) => `\\x${hex}`));
});

test('what is no hex, or of another length, is refused instead of sent', () => {
  expect(() => bytesArray(['00ff', 'zzzz'])).toThrow(/not hex/);
  expect(() => bytesArray(['00ff', '00'])).toThrow(/length/);
});

test('no values are an empty array; nothing but nulls is null', async () => {
  expect(await read('timestamptz', timeArray([]))).toEqual([]);
  expect(await read('bytea', bytesArray([]))).toEqual([]);
  expect(await read('text', binaryTextArray([]))).toEqual([]);
  expect([timeArray([null, null]), binaryTextArray([null])]).toEqual([null, null]);
});

test('any texts arrive as they were, however often each occurs', async () => {
  const text = fc.oneof(
    fc.constantFrom(null, '', 'null', '"', '\\', '{}', 'é', '中', '😀', 'x'.repeat(300)),
    fc.string({ unit: 'grapheme', maxLength: 20 }).filter((value) => !value.includes('\0')),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(text, { maxLength: 10 }), async (values) => {
      const twice = [...values, ...values];
      const isNull = twice.length > 0 && twice.every((value) => value === null);
      expect(await read('text', binaryTextArray(twice))).toEqual(isNull ? null : twice);
    }),
    { numRuns: 50 },
  );
});
