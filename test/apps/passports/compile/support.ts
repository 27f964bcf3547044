import {
  buildSnapshot,
  type CheckedRules,
  type CompileInput,
  checkRules,
  type Fact,
  parseDocument,
  type Rule,
  type RulePackage,
  type Snapshot,
} from '../../../../src/apps/passports/compile/index.ts';
import {
  documents,
  items,
  product,
  rulePackage,
} from '../../../../src/apps/passports/compile/sample/index.ts';

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
export const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

export function checked(rules: RulePackage): CheckedRules {
  const result = checkRules(rules);
  if (!result.ok) throw new Error(result.problems.map(({ message }) => message).join('\n'));
  return result.rules;
}

export const rule = (field: string, expression: string, type: string, change: Partial<Rule> = {}): Rule => ({
  field,
  expression,
  type,
  point: 1,
  granularity: 'model',
  categories: ['ev'],
  inForceFrom: '2027-02-18',
  early: 'withhold',
  onMissing: 'fail',
  article: 'Annex XIII',
  ...change,
});

export const packageOf = (...rules: readonly Rule[]): RulePackage => ({
  id: 'test',
  version: '1.0.0',
  rules,
  testCases: [],
});

export function sampleFacts(): readonly Fact[] {
  return documents.flatMap(({ input }) => {
    const parsed = parseDocument(input);
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
    return parsed.facts;
  });
}

export const snapshotOf = (facts: readonly Fact[]): Snapshot => buildSnapshot(facts, []);

export const document = 'd'.repeat(64);

export const attributeFact = (key: string, value: Fact['payload'][string], row = 2): Fact => ({
  type: 'attribute',
  key,
  schemaVersion: 1,
  payload: { value },
  sources: [{ document, row, column: 'value' }],
});

export function inputWith(change: Partial<CompileInput> = {}): CompileInput {
  return {
    passport: { id: '6f1c2f0e-0000-4000-8000-000000000001', version: '6f1c2f0e-0000-4000-8000-000000000002' },
    snapshot: change.snapshot ?? snapshotOf(sampleFacts()),
    product,
    item: items[0] ?? null,
    model: null,
    issuedAt: '2027-03-01T00:00:00Z',
    build: '0.3.0+abc',
    signingKey: 'key-1',
    salt: '5a'.repeat(32),
    ...change,
  };
}

export { items, product, rulePackage };
