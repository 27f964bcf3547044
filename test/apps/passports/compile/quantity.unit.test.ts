import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  add,
  compare,
  divide,
  formatDecimal,
  halfEven,
  multiply,
  parseDecimal,
  type Quantity,
  quantity,
  round,
  shares,
  subtract,
} from '../../../../src/apps/passports/compile/quantity.ts';
import { productType, quotientType } from '../../../../src/apps/passports/compile/units.ts';

const decimal = fc
  .tuple(fc.bigInt({ min: -(10n ** 20n), max: 10n ** 20n }), fc.integer({ min: 0, max: 12 }))
  .map(([value, scale]) => quantity('Kg', value, scale));

/** The same number as a fraction over 10^24: a second way to compute. */
const whole = ({ value, scale }: Quantity): bigint => value * 10n ** BigInt(24 - scale);

describe('BPC-7: numbers are exact', () => {
  test('BPC-7: sums, differences and products lose nothing', () => {
    fc.assert(
      fc.property(decimal, decimal, (a, b) => {
        expect(whole(add(a, b))).toBe(whole(a) + whole(b));
        expect(whole(subtract(a, b))).toBe(whole(a) - whole(b));
        expect(whole(multiply('Kg', a, b)) * 10n ** 24n).toBe(whole(a) * whole(b));
        expect(Math.sign(compare(a, b))).toBe(whole(a) < whole(b) ? -1 : whole(a) > whole(b) ? 1 : 0);
      }),
    );
  });

  test('BPC-7: 0.1 + 0.2 is 0.3', () => {
    const [a, b] = [parseDecimal('Kg', '0.1'), parseDecimal('Kg', '0.2')];
    expect(a && b && formatDecimal(add(a, b))).toBe('0.3');
  });

  test.each([
    [5n, 2n, 2n],
    [15n, 10n, 2n],
    [25n, 10n, 2n],
    [35n, 10n, 4n],
    [-5n, 2n, -2n],
    [-15n, 10n, -2n],
    [-25n, 10n, -2n],
    [5n, -2n, -2n],
    [7n, 3n, 2n],
    [-7n, 3n, -2n],
    [8n, 3n, 3n],
    [-8n, 3n, -3n],
    [0n, 3n, 0n],
  ])('BPC-7: %d / %d is %d, half to even', (numerator, denominator, expected) => {
    expect(halfEven(numerator, denominator)).toBe(expected);
  });

  test('BPC-7: a quotient is the nearest, with numerator and denominator kept', () => {
    fc.assert(
      fc.property(decimal, decimal, fc.integer({ min: 0, max: 12 }), (a, b, digits) => {
        fc.pre(b.value !== 0n);
        const { result, numerator, denominator } = divide('Number', a, b, digits);
        expect(result.scale).toBe(digits);
        // |numerator − result · denominator| is at most half of the denominator.
        const off = 2n * (numerator - result.value * denominator);
        const limit = denominator < 0n ? -denominator : denominator;
        expect(off <= limit && off >= -limit).toBe(true);
        if (off === limit || off === -limit) expect(result.value % 2n).toBe(0n);
        // The two integers are the two numbers, at another scale.
        expect(numerator * whole(b)).toBe(denominator * whole(a) * 10n ** BigInt(digits));
      }),
    );
  });

  test('BPC-7: dividing by zero is an error with a code', () => {
    const zero = quantity('KWh', 0n, 2);
    expect(() => divide('Number', zero, zero, 2)).toThrow(
      expect.objectContaining({ code: 'DIVISION_BY_ZERO' }),
    );
  });

  test('BPC-7: the sample’s footprint for each kWh', () => {
    const { result } = divide('Number', quantity('Kg', 7300n, 0), quantity('KWh', 45_600n, 0), 6);
    expect(formatDecimal(result)).toBe('0.160088');
  });

  test('BPC-7: rounding to fewer digits is half to even, to more adds zeros', () => {
    expect(formatDecimal(round(quantity('Kg', 125n, 2), 1))).toBe('1.2');
    expect(formatDecimal(round(quantity('Kg', 135n, 2), 1))).toBe('1.4');
    expect(formatDecimal(round(quantity('Kg', 5n, 0), 2))).toBe('5.00');
    expect(() => round(quantity('Kg', 5n, 0), 19)).toThrow('digits must be from 0 to 18');
  });

  test('BPC-7: shares add up to 100, each less than one last digit from its exact value, in the order of the parts', () => {
    const part = fc
      .tuple(fc.bigInt({ min: 0n, max: 10n ** 9n }), fc.integer({ min: 0, max: 4 }))
      .map(([value, scale]) => quantity('KgCO2e', value, scale));
    fc.assert(
      fc.property(
        fc.array(part, { minLength: 1, maxLength: 20 }),
        fc.integer({ min: 0, max: 6 }),
        (parts, digits) => {
          const total = parts.reduce((sum, each) => sum + whole(each), 0n);
          fc.pre(total > 0n);
          const result = shares(parts, digits);
          const hundred = 100n * 10n ** BigInt(digits);
          expect(result.reduce((sum, { value }) => sum + value, 0n)).toBe(hundred);
          for (const [at, share] of result.entries()) {
            const off = share.value * total - whole(parts[at] as Quantity) * hundred;
            expect(off < total && off > -total).toBe(true);
          }
        },
      ),
    );
  });

  test('BPC-7: three equal thirds: the first gets the rest', () => {
    const third = quantity('Kg', 1n, 0);
    expect(shares([third, third, third], 2).map(formatDecimal)).toEqual(['33.34', '33.33', '33.33']);
  });

  test('BPC-7: shares of nothing, and of negative parts, are errors', () => {
    expect(() => shares([quantity('Kg', 0n, 0)], 2)).toThrow(
      expect.objectContaining({ code: 'DIVISION_BY_ZERO' }),
    );
    expect(() => shares([quantity('Kg', -1n, 0)], 2)).toThrow(
      expect.objectContaining({ code: 'VALIDATION_ERROR' }),
    );
  });

  test.each(['1,5', '1e3', ' 1', '1.', '.5', '+1', '1_000', '0x1', '', '1.0000000000000000001', 'NaN'])(
    'BPC-7: "%s" is no decimal',
    (text) => {
      expect(parseDecimal('Kg', text)).toBeUndefined();
    },
  );

  test('BPC-3: one number has one form: 12.50 is 12.5', () => {
    expect(parseDecimal('Kg', '12.50')).toEqual(parseDecimal('Kg', '12.5'));
    expect(parseDecimal('Kg', '-0')).toEqual(parseDecimal('Kg', '0'));
  });

  test('BPC-6: units multiply and divide to units', () => {
    expect(quotientType('KgCO2e', 'KWh')).toBe('KgCO2e_per_KWh');
    expect(productType('KgCO2e_per_KWh', 'KWh')).toBe('KgCO2e');
    expect(productType('Volt', 'Ah')).toBe('Wh');
    expect(quotientType('Kg', 'Kg')).toBe('Number');
    expect(quotientType('Kg', 'Celsius')).toBeUndefined();
    expect(productType('Kg', 'KWh')).toBeUndefined();
  });
});
