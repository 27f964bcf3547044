import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CompileError, type Fact } from '../../../../src/apps/passports/compile/index.ts';
import { quantity } from '../../../../src/apps/passports/compile/quantity.ts';
import {
  environmentFor,
  FieldsNamespace,
  ItemNamespace,
  ProductNamespace,
  SheetNamespace,
  sheetColumns,
} from '../../../../src/apps/passports/compile/rules/environment.ts';
import { Evaluation } from '../../../../src/apps/passports/compile/rules/evaluate.ts';
import { CompileInputs, type FieldValue } from '../../../../src/apps/passports/compile/rules/inputs.ts';
import { refused } from '../../../../src/apps/passports/compile/rules/refused.ts';
import { noTrace } from '../../../../src/apps/passports/compile/rules/run.ts';
import {
  fromJson,
  recordFrom,
  type Value,
  valueForProof,
} from '../../../../src/apps/passports/compile/rules/values.ts';
import { expression } from './expressions.ts';
import { attributeFact, items, product, sampleFacts } from './support.ts';

const environment = environmentFor({ total: 'Kg', nothing: 'KWh' });
const facts: readonly Fact[] = [
  ...sampleFacts().filter(({ type }) => type === 'attribute'),
  ...sampleFacts()
    .filter(({ type }) => type === 'material')
    .slice(0, 4),
  attributeFact('deepDischarges', 3),
];
const fields = new Map<string, FieldValue>([
  ['total', { value: quantity('Kg', 5805n, 1), node: '' }],
  ['nothing', { value: undefined, node: '' }],
]);
const inputs = new CompileInputs({ facts, product, item: items[0] ?? null }, fields, noTrace);

/** What the library gets: the same facts as plain values. */
const context = {
  materials: facts
    .filter(({ type }) => type === 'material')
    .map(({ payload }) => recordFrom('Material', payload)),
  footprint: [],
  diligence: [],
  sheet: Object.assign(
    new SheetNamespace(),
    Object.fromEntries(
      facts
        .filter(({ type }) => type === 'attribute')
        .map(({ key, payload }) => [key, fromJson(sheetColumns[key] ?? '', payload.value)]),
    ),
  ),
  product: Object.assign(new ProductNamespace(), product),
  item: Object.assign(new ItemNamespace(), items[0]),
  fields: Object.assign(new FieldsNamespace(), { total: quantity('Kg', 5805n, 1) }),
};

const failed = { failed: true };

function ours(text: string): unknown {
  const parsed = environment.parse(text);
  parsed.check();
  try {
    return valueForProof(new Evaluation('test', inputs, noTrace).evaluate(parsed.ast).value);
  } catch (error) {
    if (error instanceof CompileError) return failed;
    throw error;
  }
}

function theirs(text: string): unknown {
  const parsed = environment.parse(text);
  parsed.check();
  try {
    return valueForProof(parsed(context) as Value);
  } catch {
    return failed;
  }
}

describe('BPC-8: our evaluator', () => {
  test('BPC-8: gives what the library’s gives, on 10,000 expressions', () => {
    const seen = { values: 0, failures: 0 };
    fc.assert(
      fc.property(expression, (text) => {
        const parsed = environment.parse(text);
        expect(refused(parsed.ast)).toBeUndefined();
        const { valid, error } = parsed.check();
        expect(valid, `${text}\n${error?.message}`).toBe(true);
        const expected = theirs(text);
        expect(ours(text), text).toEqual(expected);
        seen[expected === failed ? 'failures' : 'values']++;
      }),
      { numRuns: 10_000 },
    );
    // Expressions that all fail, or that never do, would show little.
    expect(seen.values).toBeGreaterThan(5000);
    expect(seen.failures).toBeGreaterThan(500);
  });

  test.each([
    ['sheet.temperature == Celsius("1") || true', true],
    ['true || sheet.temperature == Celsius("1")', true],
    ['sheet.temperature == Celsius("1") && false', false],
    ['sheet.temperature == Celsius("1") && true', failed],
    ['sheet.temperature == Celsius("1") || false', failed],
    ['[1, 2].exists(i, i == 2 || size(["a"][i]) == 1)', true],
    ['[2, 1].all(i, ["a", "b"][i] == "b")', failed],
    ['[2, 1].all(i, ["a", "b"][i] == "a")', false],
    ['[1, 1].exists_one(i, i == 1)', false],
    ['[1, 2, 3].map(i, i > 1, i * 10)', [20, 30]],
    ['size("é\u{1f50b}")', 2],
    ['Kg("1.50") == Kg("1.5")', true],
    ['Kg("1.50") in [Kg("1.5")]', true],
    ['9223372036854775807 + 1', failed],
    ['sum(materials.filter(m, false).map(m, m.mass))', { value: 0, scale: 0, unit: 'kg' }],
  ])('BPC-8: %s', (text, expected) => {
    expect(ours(text)).toEqual(expected);
    expect(theirs(text)).toEqual(expected);
  });
});
