/*
 * Units are types (BPC-6): a mass cannot be added to an energy, and a mass divided by an energy is a type of its own.
 *
 * A type is a unit (`Kg`) or the quotient of two (`KgCO2e_per_KWh`). `Number` has no unit; `Percent` is a unit like others,
 * so that 5 and 5 % are not taken for each other. There is no conversion but the named ones: a unit says which figures the
 * author means, and kWh are not Wh.
 */

export interface Unit {
  /** The name in a rule. */
  readonly type: string;
  /** As written in documents and shown to people. */
  readonly symbol: string;
  /** For messages: "a mass in kg". */
  readonly what: string;
}

const plain: readonly Unit[] = [
  { type: 'Number', symbol: '1', what: 'a number without unit' },
  { type: 'Percent', symbol: '%', what: 'a share in %' },
  { type: 'Kg', symbol: 'kg', what: 'a mass in kg' },
  { type: 'KgCO2e', symbol: 'kgCO2e', what: 'emissions in kg CO2e' },
  { type: 'KWh', symbol: 'kWh', what: 'an energy in kWh' },
  { type: 'Wh', symbol: 'Wh', what: 'an energy in Wh' },
  { type: 'Watt', symbol: 'W', what: 'a power in W' },
  { type: 'Ah', symbol: 'Ah', what: 'a capacity in Ah' },
  { type: 'Ampere', symbol: 'A', what: 'a current in A' },
  { type: 'Volt', symbol: 'V', what: 'a voltage in V' },
  { type: 'Ohm', symbol: 'Ohm', what: 'a resistance in Ohm' },
  { type: 'Celsius', symbol: '°C', what: 'a temperature in °C' },
  { type: 'Year', symbol: 'a', what: 'a time in years' },
  { type: 'Month', symbol: 'month', what: 'a time in months' },
  { type: 'Cycle', symbol: 'cycle', what: 'a number of cycles' },
];

const numerators = ['Percent', 'Kg', 'KgCO2e', 'KWh', 'Wh', 'Watt', 'Ah', 'Ampere', 'Cycle'];
const denominators = ['Kg', 'KWh', 'Wh', 'Ah', 'Year', 'Month', 'Cycle'];

const unitOf = (type: string): Unit => {
  const unit = plain.find((each) => each.type === type);
  if (!unit) throw new Error(`there is no unit ${type}`);
  return unit;
};

interface Quotient extends Unit {
  readonly numerator: string;
  readonly denominator: string;
}

const quotients: readonly Quotient[] = numerators.flatMap((numerator) =>
  denominators
    .filter((denominator) => denominator !== numerator)
    .map((denominator) => {
      const symbol = `${unitOf(numerator).symbol}/${unitOf(denominator).symbol}`;
      return {
        type: `${numerator}_per_${denominator}`,
        symbol,
        what: `a ratio in ${symbol}`,
        numerator,
        denominator,
      };
    }),
);

export const units: readonly Unit[] = [...plain, ...quotients];

const byType = new Map(units.map((unit) => [unit.type, unit]));
const bySymbol = new Map(units.map((unit) => [unit.symbol, unit]));

export const unitNamed = (type: string): Unit | undefined => byType.get(type);
export const unitWithSymbol = (symbol: string): Unit | undefined => bySymbol.get(symbol);

/** What a product of two types is: [left, right, product]. Both orders are in the list. */
export const products: readonly (readonly [string, string, string])[] = [
  ...units.filter(({ type }) => type !== 'Number').flatMap(({ type }) => both(type, 'Number', type)),
  ['Number', 'Number', 'Number'] as const,
  ...quotients.flatMap(({ type, numerator, denominator }) => both(type, denominator, numerator)),
  ...both('Volt', 'Ah', 'Wh'),
  ...both('Volt', 'Ampere', 'Watt'),
];

function both(left: string, right: string, product: string): readonly (readonly [string, string, string])[] {
  return [
    [left, right, product],
    [right, left, product],
  ];
}

const productByTypes = new Map(products.map(([left, right, product]) => [`${left}*${right}`, product]));
export const productType = (left: string, right: string): string | undefined =>
  productByTypes.get(`${left}*${right}`);

const quotientByTypes = new Map(
  quotients.map(({ type, numerator, denominator }) => [`${numerator}/${denominator}`, type]),
);

/** Two of one unit give a number, and a number takes no unit away. Undefined: there is no type for it. */
export function quotientType(numerator: string, denominator: string): string | undefined {
  if (numerator === denominator) return 'Number';
  if (denominator === 'Number') return numerator;
  return quotientByTypes.get(`${numerator}/${denominator}`);
}
