import { describe, expect, test } from 'vitest';
import {
  checkRules,
  type Item,
  parseRulePackage,
  type Rule,
  type RuleProblem,
  type RuleTestCase,
  runTestCases,
} from '../../../../src/apps/passports/compile/index.ts';
import { noTrace, runRules } from '../../../../src/apps/passports/compile/rules/run.ts';
import {
  attributeFact,
  checked,
  items,
  packageOf,
  product,
  rule,
  rulePackage,
  sampleFacts,
} from './support.ts';

function problemsOf(...rules: readonly Rule[]): readonly RuleProblem[] {
  const result = checkRules(packageOf(...rules));
  return result.ok ? [] : result.problems;
}

const quantity = (value: number, scale: number, unit: string) => ({
  status: 'value',
  value: { value, scale, unit },
});

describe('BPC-6: units are types', () => {
  test('BPC-6: Kg / KWh has a type, by way of div', () => {
    expect(problemsOf(rule('a', 'div(Kg("1"), KWh("2"), 3)', 'Kg_per_KWh'))).toEqual([]);
  });

  test('BPC-6: Kg + KWh is UNIT_MISMATCH, with rule, position and a sentence that helps', () => {
    const [problem] = problemsOf(rule('broken', 'Kg("1") ==\n  Kg("1") + KWh("2")', 'bool'));
    expect(problem).toEqual({
      code: 'UNIT_MISMATCH',
      rule: 'broken',
      position: { line: 2, column: 3, start: 13, end: 31 },
      message:
        'rule broken, line 2, column 3: Kg + KWh: the left side is Kg (a mass in kg), the right side KWh (an energy in kWh). ' +
        '+ needs the same unit on both sides; to relate two units, write div(a, b, digits)',
    });
  });

  test.each([
    ['Kg("1") - Percent("1")', 'Kg', 'same unit on both sides'],
    ['Kg("1") < Wh("1") ? "a" : "b"', 'string', 'same unit on both sides'],
    ['Kg("1") == 1', 'bool', 'Give the number its unit: Kg("1")'],
    ['Kg("1") * KWh("1")', 'Kg', 'no type for their product'],
    ['div(Kg("1"), Celsius("1"), 2)', 'Kg', 'no type for Kg divided by Celsius'],
    ['div(Kg("1"), KWh("1"))', 'Kg', 'lacks the number of digits'],
    ['[Kg("1"), KWh("1")][0]', 'Kg', "expected type 'Kg' but found 'KWh'"],
    ['true ? Kg("1") : KWh("1")', 'Kg', 'both results of a condition need one unit'],
    ['Kg("1")', 'KWh', 'gives KWh (an energy in kWh), and its expression gives Kg (a mass in kg)'],
    ['kWh(Kg("1"))', 'KWh', 'kWh(Kg) does not fit'],
    ['([1] + [Kg("1")])[0]', 'Kg', 'list<int> + list<Kg>'],
    ['sheet.mass + sheet.ratedCapacity', 'Kg', 'a capacity in Ah'],
    ['fields.other + Kg("1")', 'Kg', 'an energy in kWh'],
  ])('BPC-6: %s is UNIT_MISMATCH', (expression, type, sentence) => {
    const [problem] = problemsOf(rule('broken', expression, type), rule('other', 'KWh("1")', 'KWh'));
    expect(problem).toMatchObject({
      code: 'UNIT_MISMATCH',
      rule: 'broken',
      message: expect.stringContaining(sentence),
    });
    expect(problem?.position).not.toBeNull();
  });

  test.each([
    ['1 +', 'RULE_PARSE_ERROR', 'cannot be read'],
    ['"a', 'RULE_PARSE_ERROR', 'cannot be read'],
    ['1 + "a"', 'RULE_TYPE_ERROR', 'no such overload: int + string'],
    ['sheet.ratedcapacity', 'RULE_TYPE_ERROR', 'did you mean ratedCapacity?'],
    ['fields.nonsense', 'RULE_TYPE_ERROR', 'there is no nonsense here'],
    ['has(sheet.nonsense)', 'RULE_TYPE_ERROR', 'there is no attribute nonsense'],
    ['has(materials)', 'RULE_TYPE_ERROR', 'has() takes'],
    ['nonsense', 'RULE_TYPE_ERROR', 'there is no variable nonsense'],
    ['sheet', 'RULE_TYPE_ERROR', 'sheet has no value of its own'],
    ['sheet["mass"]', 'RULE_TYPE_ERROR', 'write sheet.name'],
    ['materials.map(sheet, 1)', 'RULE_TYPE_ERROR', 'choose another name'],
    ['[1] + ["a"]', 'RULE_TYPE_ERROR', 'no such overload'],
    ['materials', 'RULE_TYPE_ERROR', 'gives list<Material>'],
    ['constructor', 'RULE_TYPE_ERROR', 'there is no variable constructor'],
    ['"a".constructor()', 'RULE_TYPE_ERROR', 'there is no function constructor'],
    ['has(product.constructor) ? 1 : 2', 'RULE_TYPE_ERROR', 'a product has no constructor'],
  ])('BPC-6: %s is %s', (expression, code, sentence) => {
    const [problem] = problemsOf(rule('broken', expression, 'int'));
    expect(problem).toMatchObject({ code, rule: 'broken', message: expect.stringContaining(sentence) });
    expect(problem?.position?.line).toBe(1);
  });

  test('BPC-6: all problems of a package are reported at once', () => {
    const found = problemsOf(rule('a', '1 +', 'int'), rule('b', 'Kg("1") + 1', 'Kg'), rule('c', '1', 'int'));
    expect(found.map(({ rule: field, code }) => [field, code])).toEqual([
      ['a', 'RULE_PARSE_ERROR'],
      ['b', 'UNIT_MISMATCH'],
    ]);
  });
});

describe('BPC-7: the checker refuses what is not exact or not the same everywhere', () => {
  test.each([
    ['1.5', 'floating point'],
    ['double(1) > double(2)', 'floating point'],
    ['1e3', 'floating point'],
    ['1 / 2', 'div(a, b, digits)'],
    ['1 % 2', 'div(a, b, digits)'],
    ['dyn(1)', 'dyn hides a type'],
    ['materials.map(m, dyn(m))', 'dyn hides a type'],
    ['"a".matches("a+")', 'regular expressions'],
    ['timestamp("2027-01-01T00:00:00Z").getHours("Europe/Berlin")', 'time zones'],
    ['timestamp("2027-01-01T00:00:00Z") == timestamp("2027-01-01T00:00:00Z")', 'time zones'],
    ['duration("1h") == duration("1h")', 'Year("8")'],
    ['"a".lowerAscii()', 'no function lowerAscii'],
    ['type(1) == int', 'no function type'],
    ['null', 'null is refused'],
    ['1u', 'unsigned integers'],
    ['b"a"', 'bytes are refused'],
    ['{"a": 1}', 'no maps'],
    ['cel.bind(x, 1, x)', 'no function bind'],
    ['google.protobuf', 'no variable google'],
    ['size(b"a")', 'bytes are refused'],
  ])('BPC-7: %s', (expression, sentence) => {
    expect(problemsOf(rule('a', expression, 'int'))).toMatchObject([
      { code: 'RULE_TYPE_ERROR', rule: 'a', message: expect.stringContaining(sentence) },
    ]);
  });
});

describe('BPC-6: dependencies', () => {
  test('BPC-6: rules run after those that they read, in whatever order they are written', () => {
    const rules = checked(
      packageOf(rule('c', 'fields.b + 1', 'int'), rule('b', 'fields.a + 1', 'int'), rule('a', '1', 'int')),
    );
    expect(rules.rules.map(({ rule: { field } }) => field)).toEqual(['a', 'b', 'c']);
    const outcomes = runRules(
      rules.rules,
      { facts: [], product, item: null, issuedAt: '2027-03-01T00:00:00Z' },
      noTrace,
    );
    expect(outcomes.at(-1)?.result).toEqual({ status: 'value', value: 3 });
  });

  test('BPC-6: a cycle is reported with its path', () => {
    expect(
      problemsOf(
        rule('start', 'fields.a', 'int'),
        rule('a', 'fields.b', 'int'),
        rule('b', 'fields.c + 1', 'int'),
        rule('c', 'fields.a', 'int'),
      ),
    ).toMatchObject([
      {
        code: 'RULE_CYCLE_DETECTED',
        path: ['a', 'b', 'c', 'a'],
        message: expect.stringContaining('a → b → c → a'),
      },
    ]);
    expect(problemsOf(rule('a', 'fields.a', 'int'))).toMatchObject([{ path: ['a', 'a'] }]);
    expect(problemsOf(rule('a', 'has(fields.a) ? 1 : 2', 'int'))).toMatchObject([{ path: ['a', 'a'] }]);
  });

  test.each([
    [{ field: 'ärger' }, 'ASCII'],
    [{ type: 'double' }, 'no type "double"'],
    [{ type: 'dyn' }, 'no type "dyn"'],
    [{ type: 'list<list<int>>' }, 'no type'],
    [{ point: 5 }, 'access point'],
    [{ inForceFrom: '2027-02-30' }, 'no date'],
    [{ categories: [] }, 'categories'],
    [{ expression: `${'1 + '.repeat(2000)}1` }, 'longer than'],
  ])('a rule with %j is refused', (change, sentence) => {
    const broken = { ...rule('a', '1', 'int'), ...change } as Rule;
    expect(problemsOf(broken)).toMatchObject([
      { code: 'VALIDATION_ERROR', message: expect.stringContaining(sentence) },
    ]);
  });

  test('a package as JSON has its shape checked, with the rule and the place', () => {
    const good = packageOf(rule('a', '1', 'int'));
    expect(parseRulePackage(JSON.parse(JSON.stringify(good)))).toEqual({ ok: true, package: good });
    expect(
      parseRulePackage({ ...good, rules: [{ ...good.rules[0], point: 7, colour: 'red' }] }),
    ).toMatchObject({
      ok: false,
      problems: [
        { code: 'VALIDATION_ERROR', rule: 'a', message: expect.stringContaining('/rules/0/point') },
        { code: 'VALIDATION_ERROR', rule: 'a', message: expect.stringContaining('colour') },
      ],
    });
    for (const junk of [null, [], 'rules', { rules: [null] }, { rules: 1 }])
      expect(parseRulePackage(junk).ok).toBe(false);
  });

  test('SEC-8: of a package that has room for millions of problems, few are told', () => {
    const good = packageOf(rule('a', '1', 'int'));
    const [testCase] = rulePackage.testCases;
    const problemsIn = (change: object): readonly string[] => {
      const parsed = parseRulePackage({ ...good, ...change });
      return parsed.ok ? [] : parsed.problems.map(({ message }) => message);
    };
    const many = (length: number) => Array.from({ length }, () => ({}));
    expect(problemsIn({ rules: many(690_000) })).toEqual(['/rules: at most 500 rules are allowed']);
    expect(problemsIn({ testCases: many(690_000) })).toEqual([
      '/testCases: at most 200 test cases are allowed',
    ]);
    const wrong = {
      facts: many(10_000),
      expect: Object.fromEntries(many(500).map((_, i) => [`f${i}`, 1])),
    };
    // The first of each: of the facts, and of what it expects.
    expect(
      problemsIn({ testCases: Array.from({ length: 200 }, () => ({ ...testCase, ...wrong })) }),
    ).toHaveLength(400);
    const [tooMany] = problemsIn({
      testCases: [{ ...testCase, expect: Object.fromEntries(many(200_000).map((_, i) => [`f${i}`, 1])) }],
    });
    expect(tooMany).toBe('/testCases/0/expect: names 200000 fields; 500 are allowed');
    expect(problemsIn({ testCases: [{ ...testCase, facts: many(10_001) }] })).toEqual([
      '/testCases/0/facts: at most 10000 facts are allowed',
    ]);
    expect(
      problemsIn({ testCases: [{ ...testCase, facts: [...(testCase?.facts ?? []), { type: 'x' }] }] }),
    ).toEqual([expect.stringMatching(/^\/testCases\/0\/facts\/\d+\/type: /)]);
  });

  test('two rules for one field are refused', () => {
    expect(problemsOf(rule('a', '1', 'int'), rule('a', '2', 'int'))).toMatchObject([
      { code: 'VALIDATION_ERROR' },
    ]);
  });
});

describe('BPC-6: a result is a value, not yet in force, undetermined or out of scope', () => {
  const facts = sampleFacts();
  const run = (one: Rule, change: { item?: Item | null; issuedAt?: string; category?: 'ev' | 'lmt' } = {}) =>
    runRules(
      checked(packageOf(one)).rules,
      {
        facts,
        product: { ...product, category: change.category ?? 'ev' },
        item: change.item === undefined ? (items[0] ?? null) : change.item,
        issuedAt: change.issuedAt ?? '2027-03-01T00:00:00Z',
      },
      noTrace,
    )[0]?.result;

  test('BPC-6: a value, exact and with its unit', () => {
    expect(run(rule('a', 'kWh(sheet.nominalVoltage * sheet.ratedCapacity)', 'KWh'))).toEqual(
      quantity(99962, 3, 'kWh'),
    );
  });

  test('BPC-6: not yet in force before its date, from that day on a value', () => {
    const later = rule('a', 'sheet.chemistry', 'string', { inForceFrom: '2028-08-18', article: 'Art. 8' });
    expect(run(later)).toEqual({ status: 'not_yet_in_force', from: '2028-08-18', article: 'Art. 8' });
    expect(run(later, { issuedAt: '2028-08-17T23:59:59Z' })).toMatchObject({ status: 'not_yet_in_force' });
    expect(run(later, { issuedAt: '2028-08-18T00:00:00Z' })).toMatchObject({ status: 'value' });
  });

  test('BPC-6: published early if the rule says so and the facts are there', () => {
    const early = { inForceFrom: '2028-08-18', early: 'publish' } as const;
    expect(run(rule('a', 'sheet.chemistry', 'string', early))).toMatchObject({ status: 'value' });
    expect(run(rule('a', 'sheet.temperature', 'Celsius', early))).toMatchObject({
      status: 'not_yet_in_force',
    });
  });

  test('BPC-6: undetermined with its reason, if a fact is missing and the rule allows it', () => {
    const open = rule('a', 'sheet.temperature', 'Celsius', {
      onMissing: 'undetermined',
      reason: 'measured later',
    });
    expect(run(open)).toEqual({ status: 'undetermined', reason: 'measured later' });
  });

  test('BPC-6: out of scope for another category, and for an item’s field of a model', () => {
    expect(run(rule('a', '1', 'int'), { category: 'lmt' })).toMatchObject({ status: 'out_of_scope' });
    const ofItem = rule('a', 'item.serial', 'string', { granularity: 'item' });
    expect(run(ofItem, { item: null })).toMatchObject({ status: 'out_of_scope' });
  });

  test.each([
    ['sheet.temperature', 'Celsius', 'FACT_MISSING', 'no document gives temperature'],
    ['materials.filter(m, m.name == "gold")[0].mass', 'Kg', 'FACT_MISSING', 'the list has 0 elements'],
    ['div(Kg("1"), KWh("0"), 2)', 'Kg_per_KWh', 'DIVISION_BY_ZERO', 'the divisor is 0'],
    ['shares(materials.filter(m, false).map(m, m.mass), 2)[0]', 'Percent', 'DIVISION_BY_ZERO', 'add up to 0'],
    ['9223372036854775807 * 2', 'int', 'VALIDATION_ERROR', 'beyond 64 bits'],
    ['Kg("much")', 'Kg', 'VALIDATION_ERROR', 'is no decimal'],
    ['9223372036854775807', 'int', 'VALIDATION_ERROR', 'too many digits for a passport'],
  ])('BPC-6: %s fails with rule, position and a sentence', (expression, type, code, sentence) => {
    const act = () => run(rule('theField', expression, type));
    expect(act).toThrow(
      expect.objectContaining({ code, details: expect.objectContaining({ rule: 'theField' }) }),
    );
    expect(act).toThrow(sentence);
  });

  test('BPC-6: no bill of materials is a missing fact, not a mass of 0 kg', () => {
    const mass = checked(packageOf(rule('mass', 'sum(materials.map(m, m.mass))', 'Kg')));
    const act = () =>
      runRules(mass.rules, { facts: [], product, item: null, issuedAt: '2027-03-01T00:00:00Z' }, noTrace);
    expect(act).toThrow(expect.objectContaining({ code: 'FACT_MISSING' }));
    expect(act).toThrow('rule mass, line 1, column 5: there are no materials; upload the bill of materials');
  });

  test('a field that has no value is missing for those who read it', () => {
    const outcomes = runRules(
      checked(
        packageOf(
          rule('a', '1', 'int', { inForceFrom: '2030-01-01' }),
          rule('b', 'fields.a', 'int', { onMissing: 'undetermined', reason: 'a is not there' }),
          rule('c', 'has(fields.a) ? fields.a : 7', 'int'),
        ),
      ).rules,
      { facts, product, item: null, issuedAt: '2027-03-01T00:00:00Z' },
      noTrace,
    );
    expect(outcomes.map(({ result }) => result.status)).toEqual([
      'not_yet_in_force',
      'undetermined',
      'value',
    ]);
    expect(outcomes[2]?.result).toEqual({ status: 'value', value: 7 });
  });
});

describe('BPC-6: test cases', () => {
  const base = packageOf(rule('double', 'sheet.deepDischarges * 2', 'int'));
  const withCase = (value: number, expected: number) =>
    checked({
      ...base,
      testCases: [
        {
          name: 'twice',
          product,
          item: null,
          issuedAt: '2027-03-01T00:00:00Z',
          facts: [attributeFact('deepDischarges', value)],
          expect: { double: { status: 'value', value: expected } },
        },
      ],
    });

  test('BPC-6: a case passes, or says what differs', () => {
    expect(runTestCases(withCase(3, 6))).toEqual([{ name: 'twice', passed: true, differences: [] }]);
    expect(runTestCases(withCase(3, 7))).toEqual([
      {
        name: 'twice',
        passed: false,
        differences: [
          {
            field: 'double',
            expected: { status: 'value', value: 7 },
            actual: { status: 'value', value: 6 },
          },
        ],
      },
    ]);
  });

  test('BPC-6: an expectation for a field without rule is refused', () => {
    const result = checkRules({
      ...base,
      testCases: [
        {
          name: 'x',
          product,
          item: null,
          issuedAt: '2027-03-01T00:00:00Z',
          facts: [],
          expect: { no: { error: 'X' } },
        },
      ],
    });
    expect(result).toMatchObject({ ok: false, problems: [{ code: 'VALIDATION_ERROR' }] });
  });

  test('BPC-6: a case that expects nothing is refused, and would fail: it proves nothing', () => {
    const rules = withCase(3, 6);
    const [first] = rules.package.testCases;
    const empty = { ...rules.package, testCases: [{ ...(first as RuleTestCase), expect: {} }] };
    expect(checkRules(empty)).toEqual({
      ok: false,
      problems: [
        {
          code: 'VALIDATION_ERROR',
          rule: null,
          position: null,
          message: expect.stringMatching(
            /^test case "twice" expects nothing, so it would pass .*: name at least one field in "expect"/,
          ),
        },
      ],
    });
    expect(runTestCases({ ...rules, package: empty })).toEqual([
      { name: 'twice', passed: false, differences: [] },
    ]);
  });

  test('an expression that would run for hours is stopped', () => {
    const nested =
      'materials.map(a, materials.map(b, materials.map(c, materials.map(d, materials.exists(e, materials.exists(f, f.mass < e.mass && false))))))';
    const deep = checked(packageOf(rule('a', `size(${nested})`, 'int')));
    const act = () =>
      runRules(
        deep.rules,
        { facts: sampleFacts(), product, item: null, issuedAt: '2027-03-01T00:00:00Z' },
        noTrace,
      );
    expect(act).toThrow('needs more than');
  });
});

describe('BPC-6: what a package may cost', () => {
  const material = (at: number) => ({
    type: 'material' as const,
    key: `anode/m${at}`,
    payload: {
      component: 'anode',
      name: `m${at}`,
      cas: '',
      mass: { value: 1, scale: 0, unit: 'kg' },
      critical: [],
      hazardous: false,
    },
  });
  const caseOf = (name: string, rules: readonly Rule[], count = 50): RuleTestCase => ({
    name,
    product,
    item: null,
    issuedAt: '2027-03-01T00:00:00Z',
    facts: Array.from({ length: count }, (_, at) => material(at)),
    expect: { [rules[0]?.field ?? '']: { status: 'value', value: 1 } },
  });
  const cubed =
    'size(materials.map(a, size(materials.map(b, size(materials.filter(c, false)))))) > 0 ? 1 : 0';
  const outcomesOf = (rules: readonly Rule[], cases: readonly RuleTestCase[]) =>
    runTestCases(checked({ ...packageOf(...rules), testCases: cases }));

  test('SEC-5: all rules in all cases have one budget, and the error names the case and the rule that used it up', () => {
    const rules = Array.from({ length: 10 }, (_, at) => rule(`r${at}`, cubed, 'int'));
    const cases = Array.from({ length: 20 }, (_, at) => caseOf(`case ${at}`, rules));
    expect(outcomesOf(rules, cases.slice(0, 2)).every(({ passed }) => passed)).toBe(true);
    expect(() => outcomesOf(rules, cases)).toThrow(
      /^rule r\d, in test case "case [1-9]": the rules together need more than 5000000 steps/,
    );
  });

  test('no test case can expect that the budget is used up, and no condition goes on without it', () => {
    const rules = [
      rule('a', `${cubed} == 2 || true ? 1 : 0`, 'int'),
      ...Array.from({ length: 80 }, (_, at) => rule(`r${at}`, `${cubed} == 2 || true ? 1 : 0`, 'int')),
    ];
    const expecting = { ...caseOf('x', rules), expect: { a: { error: 'VALIDATION_ERROR' } } };
    expect(() => outcomesOf(rules, [expecting])).toThrow('in test case "x"');
    const alone = rule('a', `${cubed} == 2 || true ? 1 : 0`, 'int');
    expect(outcomesOf([alone], [caseOf('too many facts', [alone], 100)])[0]?.differences).toMatchObject([
      { actual: { error: 'VALIDATION_ERROR' } },
    ]);
  });

  const doubled = (first: string, type: string) =>
    Array.from({ length: 45 }, (_, at) =>
      rule(`a${at}`, at === 0 ? first : `fields.a${at - 1} + fields.a${at - 1}`, type),
    );
  test.each([
    ['a list that doubles from rule to rule', doubled('materials.map(m, m.mass)', 'list<Kg>')],
    ['a text that doubles from rule to rule', doubled('"texttexttexttext"', 'string')],
    [
      'a list that is in itself twice, again and again',
      [rule('a', `size([1]${'.map(a, [a, a])'.repeat(45)})`, 'int')],
    ],
    [
      'two such lists compared',
      [rule('a', `[1]${'.map(a, [a, a])'.repeat(28)} == [1]${'.map(a, [a, a])'.repeat(28)} ? 1 : 0`, 'int')],
    ],
    [
      'a separator that is longer than what it joins',
      [
        rule(
          'a',
          `size(materials.map(m, materials.map(n, m.name).join("${'-'.repeat(3000)}")).join("${'-'.repeat(700)}"))`,
          'int',
        ),
      ],
    ],
    [
      'a product of small numbers, again and again',
      Array.from({ length: 45 }, (_, at) =>
        rule(`a${at}`, at === 0 ? 'Number("0.1")' : `fields.a${at - 1} * fields.a${at - 1}`, 'Number'),
      ),
    ],
  ])('%s fails at once', (_, rules) => {
    const before = process.memoryUsage().heapUsed;
    const [outcome] = outcomesOf(rules, [caseOf('x', rules)]);
    expect(outcome?.differences[0]?.actual).toEqual({ error: 'VALIDATION_ERROR' });
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(300 * 1024 * 1024);
  });

  test('the sample is far below', () => {
    const rules = checked(rulePackage);
    const [one] = rulePackage.testCases;
    const many = Array.from({ length: 200 }, () => one as RuleTestCase);
    const outcomes = runTestCases({ ...rules, package: { ...rulePackage, testCases: many } });
    expect(outcomes.every(({ passed }) => passed)).toBe(true);
  });

  test('checking takes time in proportion to the length of an expression', () => {
    const sum = (terms: number) => rule('a', Array.from({ length: terms }, () => '1').join('+'), 'int');
    const msOf = (terms: number): number => {
      const each = Array.from({ length: 5 }, () => {
        const start = performance.now();
        expect(problemsOf(sum(terms))).toEqual([]);
        return performance.now() - start;
      });
      return Math.min(...each);
    };
    msOf(900);
    // 9 times the terms took 60 times as long.
    expect(msOf(900)).toBeLessThan(Math.max(10, msOf(100) * 30));
  });
});
