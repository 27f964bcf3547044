import fc from 'fast-check';

/*
 * Well-typed expressions of the rule language. Some fail when they are evaluated (a missing attribute, an index beyond the
 * end, a division by zero, an overflow): then both evaluators must fail.
 */

type Text = fc.Arbitrary<string>;

const join = (parts: readonly (string | Text)[]): Text =>
  fc
    .tuple(...parts.map((part) => (typeof part === 'string' ? fc.constant(part) : part)))
    .map((texts) => texts.join(''));

interface Grammar {
  bool: string;
  int: string;
  string: string;
  Kg: string;
  KWh: string;
  Number: string;
  Percent: string;
  strings: string;
  masses: string;
  materials: string;
  ints: string;
}

const decimal = fc
  .tuple(fc.integer({ min: -999, max: 999 }), fc.integer({ min: 0, max: 3 }))
  .map(([value, scale]) => (value / 10 ** scale).toFixed(scale));
const small = fc.integer({ min: 0, max: 3 }).map(String);
const digits = fc.integer({ min: 0, max: 5 }).map(String);
const word = fc.constantFrom('"cathode"', '"anode"', '"graphite"', '""', '"é\u{1f50b}"', '"NMC811"');

/** `scope` has the variables of comprehensions that an expression is in: materials `m`, strings `s`, integers `i`. */
function grammar(
  scope: ReadonlySet<'m' | 's' | 'i' | 'k'>,
  depth: number,
): { readonly [K in keyof Grammar]: Text } {
  const leaf: { readonly [K in keyof Grammar]: readonly Text[] } = {
    bool: [
      fc.constantFrom('true', 'false', 'has(sheet.chemistry)', 'has(sheet.temperature)', 'has(item.serial)'),
      ...(scope.has('m') ? [fc.constant('m.hazardous')] : []),
    ],
    int: [
      fc.integer({ min: -5, max: 5 }).map((value) => (value < 0 ? `(${value})` : String(value))),
      fc.constantFrom('9223372036854775807', 'size(materials)', 'sheet.deepDischarges', 'sheet.overcharges'),
      ...(scope.has('i') ? [fc.constant('i')] : []),
    ],
    string: [
      word,
      fc.constantFrom(
        'product.category',
        'item.serial',
        'sheet.chemistry',
        'sheet.accidents',
        'materials[0].name',
      ),
      ...(scope.has('m') ? [fc.constantFrom('m.name', 'm.component', 'm.cas')] : []),
      ...(scope.has('s') ? [fc.constant('s')] : []),
    ],
    Kg: [
      decimal.map((text) => `Kg("${text}")`),
      fc.constantFrom('materials[1].mass', 'sheet.mass', 'fields.total'),
      ...(scope.has('m') ? [fc.constant('m.mass')] : []),
      ...(scope.has('k') ? [fc.constant('k')] : []),
    ],
    KWh: [
      decimal.map((text) => `KWh("${text}")`),
      fc.constantFrom('sheet.certifiedEnergy', 'fields.nothing'),
    ],
    Number: [decimal.map((text) => `Number("${text}")`), fc.constant('count(sheet.lifetimeCycles)')],
    Percent: [decimal.map((text) => `Percent("${text}")`), fc.constant('sheet.initialEfficiency')],
    strings: [fc.constant('materials.map(n, n.component)'), fc.constant('[""]')],
    masses: [
      fc.constant('materials.map(n, n.mass)'),
      fc.constant('materials.filter(n, false).map(n, n.mass)'),
    ],
    materials: [fc.constant('materials')],
    ints: [fc.constant('[1, 2, 3]'), fc.constant('[0]')],
  };
  const oneOf = (name: keyof Grammar, inner: readonly Text[]): Text =>
    fc.oneof(...leaf[name], ...(depth === 0 ? [] : inner));
  if (depth === 0)
    return Object.fromEntries(Object.keys(leaf).map((name) => [name, oneOf(name as keyof Grammar, [])])) as {
      readonly [K in keyof Grammar]: Text;
    };

  const g = grammar(scope, depth - 1);
  const withM = grammar(new Set([...scope, 'm']), depth - 1);
  const withS = grammar(new Set([...scope, 's']), depth - 1);
  const withI = grammar(new Set([...scope, 'i']), depth - 1);
  const withK = grammar(new Set([...scope, 'k']), depth - 1);
  const ternary = (type: Text): Text => join(['(', g.bool, ' ? ', type, ' : ', type, ')']);
  const relation = fc.constantFrom(' < ', ' <= ', ' > ', ' >= ', ' == ', ' != ');
  const sign = fc.constantFrom(' + ', ' - ');
  const quantity = (type: 'Kg' | 'KWh' | 'Number' | 'Percent'): readonly Text[] => [
    join(['(', g[type], sign, g[type], ')']),
    join(['(-', g[type], ')']),
    join(['(', g.Number, ' * ', g[type], ')']),
    join(['(', g[type], ' * ', g.int, ')']),
    join(['div(', g[type], ', ', g.Number, ', ', digits, ')']),
    join(['div(', g[type], ', ', g.int, ', ', digits, ')']),
    join(['round(', g[type], ', ', digits, ')']),
    join(['percentOf(', g.Percent, ', ', g[type], ')']),
    ternary(g[type]),
  ];
  const quantifier = fc.constantFrom('exists', 'all', 'exists_one');
  return {
    bool: oneOf('bool', [
      join(['(', g.bool, fc.constantFrom(' && ', ' || ', ' == ', ' != '), g.bool, ')']),
      join(['!', g.bool]),
      join(['(', g.int, relation, g.int, ')']),
      join(['(', g.string, relation, g.string, ')']),
      join(['(', g.Kg, relation, g.Kg, ')']),
      join(['(', g.Percent, relation, g.Percent, ')']),
      join(['(', g.string, ' in ', g.strings, ')']),
      join(['(', g.Kg, ' in ', g.masses, ')']),
      join(['(', g.masses, fc.constantFrom(' == ', ' != '), g.masses, ')']),
      join([g.string, fc.constantFrom('.contains(', '.startsWith(', '.endsWith('), g.string, ')']),
      join([g.materials, '.', quantifier, '(m, ', withM.bool, ')']),
      join([g.strings, '.', quantifier, '(s, ', withS.bool, ')']),
      join([g.ints, '.', quantifier, '(i, ', withI.bool, ')']),
      ternary(g.bool),
    ]),
    int: oneOf('int', [
      join(['(', g.int, fc.constantFrom(' + ', ' - ', ' * '), g.int, ')']),
      join(['size(', fc.oneof(g.string, g.strings, g.masses), ')']),
      join([g.ints, '[', small, ']']),
      ternary(g.int),
    ]),
    string: oneOf('string', [
      join(['(', g.string, ' + ', g.string, ')']),
      join(['string(', g.int, ')']),
      join([g.strings, '.join("/")']),
      join([g.strings, '[', small, ']']),
      ternary(g.string),
    ]),
    Kg: oneOf('Kg', [
      ...quantity('Kg'),
      join([fc.constantFrom('sum', 'min', 'max'), '(', g.masses, ')']),
      join([g.masses, '[', small, ']']),
      join([g.materials, '[', small, '].mass']),
    ]),
    KWh: oneOf('KWh', [...quantity('KWh'), join(['kWh(wh(', g.KWh, '))'])]),
    Number: oneOf('Number', [
      ...quantity('Number').slice(0, 4),
      join(['div(', g.Kg, ', ', g.Kg, ', ', digits, ')']),
      join(['div(', g.int, ', ', g.int, ', ', digits, ')']),
      join(['number(', g.int, ')']),
    ]),
    Percent: oneOf('Percent', [
      ...quantity('Percent').slice(0, 2),
      join(['percent(', g.Number, ')']),
      join(['shares(', g.masses, ', ', digits, ')[', small, ']']),
    ]),
    strings: oneOf('strings', [
      join(['[', g.string, ', ', g.string, ']']),
      join([g.materials, '.map(m, ', withM.string, ')']),
      join([g.materials, '.map(m, ', withM.bool, ', ', withM.string, ')']),
      join([g.strings, '.filter(s, ', withS.bool, ')']),
      join(['(', g.strings, ' + ', g.strings, ')']),
      join(['distinct(', g.strings, ')']),
      join(['distinct(flatten(', g.materials, '.map(m, m.critical)))']),
    ]),
    masses: oneOf('masses', [
      join(['[', g.Kg, ', ', g.Kg, ']']),
      join([g.materials, '.map(m, ', withM.Kg, ')']),
      join([g.masses, '.filter(k, ', withK.bool, ')']),
      join([g.masses, '.map(k, ', withK.Kg, ')']),
    ]),
    materials: oneOf('materials', [
      join([g.materials, '.filter(m, ', withM.bool, ')']),
      ternary(g.materials),
    ]),
    ints: oneOf('ints', [
      join(['[', g.int, ', ', g.int, ']']),
      join([g.ints, '.map(i, ', withI.int, ')']),
      join([g.ints, '.filter(i, ', withI.bool, ')']),
    ]),
  };
}

const all = grammar(new Set(), 3);

export const expression: Text = fc.oneof(
  all.bool,
  all.int,
  all.string,
  all.Kg,
  all.KWh,
  all.Number,
  all.Percent,
  all.strings,
  all.masses,
  all.materials,
);
