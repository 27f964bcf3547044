import { parse as parseCsv } from 'csv-parse/sync';
import { describe, expect, test } from 'vitest';
import { parsingItems } from '../../../../src/apps/passports/compile/documents/parse.ts';
import {
  type DocumentKind,
  type DocumentProblem,
  documentLimits,
  type Fact,
  mergeFacts,
  parseDocument,
  parseItems,
  sha256Hex,
} from '../../../../src/apps/passports/compile/index.ts';
import type { Slices } from '../../../../src/apps/passports/compile/rules/slices.ts';
import { documents } from '../../../../src/apps/passports/compile/sample/index.ts';
import { ItemUploads } from '../../../../src/apps/passports/routes/item-uploads.ts';
import { withWorkOutside } from '../../../../src/engine/outside-transaction.ts';
import { bytesOf, textOf } from './support.ts';

const sampleText = (name: string): string =>
  textOf(documents.find((each) => each.name === name)?.input.bytes ?? new Uint8Array());
const materials = sampleText('bill-of-materials.csv');

function facts(kind: DocumentKind, text: string, format: 'csv' | 'json' = 'csv'): readonly Fact[] {
  const parsed = parseDocument({ kind, format, bytes: bytesOf(text) });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  return parsed.facts;
}

function problems(
  kind: DocumentKind,
  text: string | Uint8Array,
  format: 'csv' | 'json' = 'csv',
): readonly DocumentProblem[] {
  const bytes = typeof text === 'string' ? bytesOf(text) : text;
  const parsed = parseDocument({ kind, format, bytes });
  return parsed.ok ? [] : parsed.problems;
}

const sheet = (...rows: readonly string[]): string => ['attribute,value,unit', ...rows, ''].join('\n');

describe('BPC-2: documents become facts', () => {
  test('BPC-2: a bill of materials gives one fact a row, with document, row and column', () => {
    const read = facts('bill_of_materials', materials);
    expect(read).toHaveLength(18);
    expect(read[8]).toEqual({
      type: 'material',
      key: 'electrolyte/ethyl methyl carbonate',
      schemaVersion: 1,
      payload: {
        component: 'electrolyte',
        name: 'ethyl methyl carbonate',
        cas: '623-53-0',
        mass: { value: 305, scale: 1, unit: 'kg' },
        critical: [],
        hazardous: false,
      },
      sources: [{ document: sha256Hex(bytesOf(materials)), row: 10, column: 'mass' }],
    });
  });

  test('BPC-2: JSON gives the same facts, and numbers keep their digits', () => {
    const csv = facts('carbon_footprint', sampleText('carbon-footprint.csv').replace('5630', '5630.10'));
    const json = `{"rows": [
      {"stage": "raw_materials", "amount": 5630.10, "unit": "kgCO2e"},
      {"stage": "production", "amount": "1400", "unit": "kgCO2e"},
      {"stage": "distribution", "amount": 70, "unit": "kgCO2e"},
      {"stage": "end_of_life", "amount": 200, "unit": "kgCO2e"}
    ]}`;
    const bare = (list: readonly Fact[]) => list.map(({ sources: _, ...fact }) => fact);
    expect(bare(facts('carbon_footprint', json, 'json'))).toEqual(bare(csv));
    expect(facts('carbon_footprint', json, 'json')[2]?.sources[0]).toMatchObject({
      row: 3,
      column: 'amount',
    });
  });

  test('semicolons, a byte order mark and Windows line ends are read', () => {
    const text = '\ufeffattribute;value;unit\r\nratedCapacity;151;Ah\r\nchemistry;NMC, graphite;\r\n';
    expect(facts('data_sheet', text).map(({ key }) => key)).toEqual(['ratedCapacity', 'chemistry']);
  });

  test('BPC-3: reading twice gives the same facts; two documents that agree give one fact with both sources', () => {
    const first = facts('bill_of_materials', materials);
    const second = facts('bill_of_materials', `${materials}\n\n`);
    expect(mergeFacts([...first, ...first])).toEqual(first);
    const merged = mergeFacts([...first, ...second]);
    expect(merged).toHaveLength(18);
    const both = [first[0]?.sources[0]?.document, second[0]?.sources[0]?.document].sort();
    expect(merged[0]?.sources.map((source) => source.document)).toEqual(both);
  });
});

describe('BPC-2: what is wrong is said with row and column', () => {
  const row = (change: string) => `component,material,cas,mass,unit\ncathode,good,,1,kg\n${change}\n`;

  test.each([
    ['a decimal comma', row('anode,"x",,"1,5",kg'), 'DECIMAL_COMMA', 3, 'mass'],
    ['thousands and a decimal comma', row('anode,x,,"1.234,5",kg'), 'DECIMAL_COMMA', 3, 'mass'],
    ['a word for a number', row('anode,x,,much,kg'), 'INVALID_VALUE', 3, 'mass'],
    ['a negative mass', row('anode,x,,-1,kg'), 'INVALID_VALUE', 3, 'mass'],
    ['too many digits', row('anode,x,,99999999999999999999,kg'), 'INVALID_VALUE', 3, 'mass'],
    ['a unit that does not fit', row('anode,x,,1,g'), 'WRONG_UNIT', 3, 'unit'],
    ['no unit', row('anode,x,,1,'), 'WRONG_UNIT', 3, 'unit'],
    ['a CAS number with a wrong check digit', row('anode,x,7440-50-9,1,kg'), 'CAS_CHECK_DIGIT', 3, 'cas'],
    ['something that is no CAS number', row('anode,x,copper,1,kg'), 'INVALID_VALUE', 3, 'cas'],
    ['no material', row('anode,,,1,kg'), 'MISSING_VALUE', 3, 'material'],
    ['an unknown component', row('lid,x,,1,kg'), 'INVALID_VALUE', 3, 'component'],
    ['the same material twice', row('cathode,good,,2,kg'), 'DUPLICATE_KEY', 3, 'material'],
    ['a short row', row('anode,x,,1'), 'INVALID_VALUE', 3, null],
    ['a doubled column', 'component,material,mass,mass,unit\n', 'DOUBLED_COLUMN', 1, 'mass'],
    ['a missing column', 'component,material,unit\n', 'MISSING_COLUMN', 1, 'mass'],
    ['an unknown column', 'component,material,mass,unit,colour\n', 'UNKNOWN_COLUMN', 1, 'colour'],
    ['no rows', 'component,material,mass,unit\n', 'EMPTY', null, null],
    ['nothing at all', '', 'EMPTY', null, null],
    ['a quote that is never closed', row('anode,"x,,1,kg'), 'NOT_READABLE', 3, null],
    ['a control character', row('anode,x\u0007,,1,kg'), 'INVALID_VALUE', 3, 'material'],
  ])('BPC-2: %s', (_, text, code, at, column) => {
    expect(problems('bill_of_materials', text)).toContainEqual(
      expect.objectContaining({ code, row: at, column, message: expect.stringMatching(/\w{3}/) }),
    );
  });

  test('BPC-2: wrong encodings, with the row and column of the first byte that cannot be read', () => {
    const latin1 = Buffer.from(
      'component,material,cas,mass,unit\ncathode,good,,1,kg\nanode,Kupferstärke,,1,kg\n',
      'latin1',
    );
    expect(problems('bill_of_materials', latin1)).toMatchObject([
      { code: 'WRONG_ENCODING', row: 3, column: 'material', message: expect.stringContaining('0xe4') },
    ]);
    const utf16 = Buffer.from(`\ufeff${materials}`, 'utf16le');
    expect(problems('bill_of_materials', utf16)).toMatchObject([{ code: 'WRONG_ENCODING', row: 1 }]);
  });

  test('BPC-2: all problems are reported at once, up to a limit', () => {
    const rows = Array.from({ length: 500 }, (_, at) => `anode,m${at},1-1-1,"1,5",g`);
    const found = problems('bill_of_materials', ['component,material,cas,mass,unit', ...rows].join('\n'));
    expect(found).toHaveLength(documentLimits.maxProblems);
    expect(new Set(found.slice(0, 3).map(({ code }) => code))).toEqual(
      new Set(['INVALID_VALUE', 'WRONG_UNIT']),
    );
  });

  test('BPC-2: a file that is too large or has too many rows is refused as a whole', () => {
    const rows = Array.from({ length: 100_000 }, (_, at) => `anode,m${at},,1,kg`);
    const many = ['component,material,cas,mass,unit', ...rows].join('\n');
    expect(problems('bill_of_materials', many)).toMatchObject([{ code: 'TOO_MANY_ROWS', row: 50_002 }]);
    expect(problems('bill_of_materials', new Uint8Array(50 * 1024 * 1024))).toMatchObject([
      { code: 'TOO_LARGE' },
    ]);
  });

  const repeated = (count: number, each: (at: number) => string, between = ','): string =>
    Array.from({ length: count }, (_, at) => each(at)).join(between);

  test.each([
    [
      'JSON with another key in each entry',
      'json',
      `[${repeated(6000, (at) => `{"k${at}":1}`)}]`,
      'TOO_MANY_COLUMNS',
    ],
    [
      'JSON with one entry of 40,000 keys',
      'json',
      `[{${repeated(40_000, (at) => `"k${at}":1`)}}]`,
      'TOO_MANY_COLUMNS',
    ],
    ['JSON with millions of empty objects', 'json', `[${repeated(3_000_000, () => '{}')}]`, 'TOO_MANY_ROWS'],
    [
      'JSON with millions of values in lists',
      'json',
      `[${repeated(100, () => `[${repeated(30_000, () => '1')}]`)}]`,
      'TOO_MANY_ROWS',
    ],
    [
      'CSV with 12,000 columns',
      'csv',
      `${repeated(12_000, (at) => at.toString(36))}\n1\n`,
      'TOO_MANY_COLUMNS',
    ],
    [
      'CSV with a first line of commas',
      'csv',
      repeated(200, () => ','.repeat(60_000), '\n'),
      'TOO_MANY_COLUMNS',
    ],
    [
      'CSV with rows of commas',
      'csv',
      `topic,statement\n${repeated(200, () => ','.repeat(60_000), '\n')}`,
      'INVALID_VALUE',
    ],
  ] as const)('BPC-2: %s is refused at once, before rows are made of it', (_, format, text, code) => {
    const before = process.memoryUsage().heapUsed;
    const found = problems('due_diligence', text, format);
    expect(found.every((problem) => problem.code === code)).toBe(true);
    expect(found.length).toBeGreaterThan(0);
    expect(JSON.stringify(found).length).toBeLessThan(50_000);
    // The first took 400 MB, the third and the last a gigabyte.
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(150 * 1024 * 1024);
  });

  test('BPC-2: a problem quotes a long name or value in short', () => {
    const found = problems('due_diligence', `[{"${'k'.repeat(100_000)}": 1}]`, 'json');
    expect(found[0]).toMatchObject({ code: 'UNKNOWN_COLUMN' });
    expect(JSON.stringify(found).length).toBeLessThan(20_000);
  });

  test.each([
    ['an attribute that does not exist', sheet('voltage,3,V'), 'INVALID_VALUE', 'attribute'],
    ['a unit that does not fit', sheet('ratedCapacity,151,kWh'), 'WRONG_UNIT', 'unit'],
    ['a unit where there is none', sheet('chemistry,NMC,kg'), 'WRONG_UNIT', 'unit'],
    ['an attribute that is computed', sheet('criticalRawMaterials,lithium,'), 'INVALID_VALUE', 'attribute'],
    ['a fraction of an integer', sheet('deepDischarges,1.5,'), 'INVALID_VALUE', 'value'],
  ])('BPC-2: in a data sheet, %s', (_, text, code, column) => {
    expect(problems('data_sheet', text)).toMatchObject([{ code, row: 2, column }]);
  });

  test('a name that is nearly right is suggested', () => {
    expect(problems('data_sheet', sheet('rated_capacity,151,Ah'))[0]?.message).toContain(
      'did you mean ratedCapacity?',
    );
  });

  test('BPC-2: a carbon footprint without one of its stages', () => {
    const text = sampleText('carbon-footprint.csv').replace(/production.*\n/, '');
    expect(problems('carbon_footprint', text)).toMatchObject([
      { code: 'MISSING_VALUE', column: 'stage', message: expect.stringContaining('production') },
    ]);
  });

  test.each([
    ['no JSON', '{', 'NOT_READABLE'],
    ['no list', '{"a": 1}', 'NOT_READABLE'],
    ['a doubled key', '[{"stage": "production", "stage": "x"}]', 'DOUBLED_COLUMN'],
    ['an entry that is no object', '[{"stage":"production","amount":1,"unit":"kgCO2e"}, 7]', 'INVALID_VALUE'],
    [
      'a nested object',
      '[{"stage": "production", "amount": {"value": 1}, "unit": "kgCO2e"}]',
      'INVALID_VALUE',
    ],
  ])('BPC-2: JSON with %s', (_, text, code) => {
    expect(problems('carbon_footprint', text, 'json').map((problem) => problem.code)).toContain(code);
  });

  test('a link in a due diligence document must be one', () => {
    const text = 'topic,statement,reference\nreport,all good,javascript:alert(1)\n';
    expect(problems('due_diligence', text)).toMatchObject([
      { code: 'INVALID_VALUE', row: 2, column: 'reference' },
    ]);
  });
});

/** What a generator answers, and how often it gave way. */
function sliced<T>(slices: Slices<T>): { readonly result: T; readonly pauses: number } {
  for (let pauses = 0; ; pauses += 1) {
    const { done, value } = slices.next();
    if (done) return { result: value, pauses };
  }
}

describe('SEC-5: documents are read in slices', () => {
  const count = 5_000;
  const cells = (at: number) => [`A-${at}`, '2027-01', `Hall ${at}, "${'x'.repeat(20)}"\nGate 2`, 'original'];

  test('SEC-5: a long list gives way all the time, as CSV and as JSON', () => {
    const plain = Array.from({ length: count }, (_, at) => cells(at).map((cell) => cell.replace('\n', ' ')));
    const names = ['serial', 'manufactured_on', 'manufactured_at', 'status'];
    const quoted = (cell: string) => `"${cell.replaceAll('"', '""')}"`;
    const texts = {
      csv: [names, ...plain].map((row) => row.map(quoted).join(',')).join('\n'),
      json: JSON.stringify(plain.map((row) => Object.fromEntries(row.map((cell, at) => [names[at], cell])))),
    };
    for (const format of ['csv', 'json'] as const) {
      const { result, pauses } = sliced(parsingItems({ format, bytes: bytesOf(texts[format]) }));
      expect(result.ok && result.items.length).toBe(count);
      expect(pauses).toBeGreaterThan(count / 500);
    }
  });

  test('SEC-5: a request reads a long list while it has no transaction, and a short one at once', async () => {
    const uploads = new ItemUploads(documentLimits);
    const attempts = async (rows: number): Promise<number> => {
      const lines = Array.from({ length: rows }, (_, at) => `A-${at},2027-01,Here,`);
      const bytes = bytesOf(['serial,manufactured_on,manufactured_at,status', ...lines].join('\n'));
      let begun = 0;
      const read = await withWorkOutside(async () => {
        begun += 1;
        return uploads.read({ format: 'csv', bytes });
      });
      expect(read).toEqual(parseItems({ format: 'csv', bytes }));
      return begun;
    };
    expect([await attempts(10), await attempts(2000)]).toEqual([1, 2]);
  });

  test.each(['\n', '\r\n', '\r'])(
    'BPC-2, SEC-5: rows have the numbers of the file across slices, lines end with %j',
    (end) => {
      // Longer than several slices, with quoted line ends, empty lines, and quotes at all places.
      const lines = Array.from({ length: 3000 }, (_, at) => {
        const quotes = '""'.repeat(at % 5);
        const gap = at % 97 === 0 ? end : '';
        return `report ${at},"${quotes}a, b${at % 3 === 0 ? end : ' '}${'x'.repeat(40)}${quotes}"${gap}`;
      });
      const text = ['topic,statement', ...lines].join(end);
      const rows: number[] = [];
      // As one parse of the whole file counts.
      parseCsv(text, {
        skip_empty_lines: true,
        on_record: (_, { lines: row }) => {
          rows.push(row);
          return null;
        },
      });
      const broken = `${text}${end}last,"x"y${end}`;
      const read = facts('due_diligence', text.replaceAll(`b${end}`, 'b  '));
      expect(read).toHaveLength(3000);
      const found = problems('due_diligence', text);
      // Line ends in a text are refused: with the row of each.
      const wrong = rows.slice(1).filter((_, at) => at % 3 === 0);
      expect(found.map(({ row }) => row)).toEqual(wrong.slice(0, documentLimits.maxProblems));
      expect(problems('due_diligence', broken)).toMatchObject([
        {
          code: 'NOT_READABLE',
          row: (rows.at(-1) ?? 0) + 1,
          message: expect.stringContaining(`at line ${(rows.at(-1) ?? 0) + 1} `),
        },
      ]);
    },
  );

  test('BPC-2, SEC-5: a row of nothing but commas ends the file, and a wrong byte behind millions of lines is found', () => {
    const [row] = [','.repeat(1_000_000)];
    expect(problems('due_diligence', `topic,statement\n${row}\n`).at(-1)).toMatchObject({
      code: 'NOT_READABLE',
    });
    const bytes = Buffer.concat([bytesOf(`topic,statement${'\n'.repeat(1_000_000)}a,`), Buffer.of(0xe4)]);
    expect(problems('due_diligence', bytes)).toMatchObject([
      { code: 'WRONG_ENCODING', row: 1_000_001, column: 'statement' },
    ]);
  });
});

describe('lists of batteries', () => {
  const items = (...rows: readonly string[]) =>
    parseItems({
      format: 'csv',
      bytes: bytesOf(['serial,manufactured_on,manufactured_at,status', ...rows].join('\n')),
    });

  test('give items', () => {
    expect(items('A-1,2027-01,Here,', 'A-2,2027-02,There,reused')).toMatchObject({
      ok: true,
      items: [
        { serial: 'A-1', manufacturedOn: '2027-01', manufacturedAt: 'Here', status: 'original' },
        { serial: 'A-2', status: 'reused' },
      ],
    });
  });

  test('BPC-2: duplicate serial numbers are refused, with both rows', () => {
    expect(items('A-1,2027-01,Here,', 'A-2,2027-01,Here,', 'A-1,2027-01,Here,')).toMatchObject({
      ok: false,
      problems: [
        { code: 'DUPLICATE_SERIAL', row: 4, column: 'serial', message: expect.stringContaining('row 2') },
      ],
    });
  });

  test.each([
    ['A 1,2027-01,Here,', 'serial'],
    ['A-1,2027-13,Here,', 'manufactured_on'],
    ['A-1,2027-01,Here,new', 'status'],
    ['A-1,2027-01,,', 'manufactured_at'],
  ])('BPC-2: %s is refused', (row, column) => {
    expect(items(row)).toMatchObject({ ok: false, problems: [{ row: 2, column }] });
  });
});
