import { TemplateError } from './errors.ts';

/** A price in parts, so that its decimals can be drawn smaller. */
export interface PriceParts {
  /** With its sign and grouping: `1.299`. */
  readonly whole: string;
  /** The separator of the locale; empty where the currency has no decimals. */
  readonly separator: string;
  readonly decimals: string;
  readonly symbol: string;
  readonly symbolFirst: boolean;
}

const decimal = /^-?\d{1,12}(?:\.(\d{1,6}))?$/;

/**
 * Places of the minor unit by ISO 4217, where they are not two. Not from Intl, which gives what people of today use: no
 * places for the Hungarian forint or the Iraqi dinar, so that 12.50 would be shown as 13.
 */
const minorUnits = new Map(
  Object.entries({
    0: 'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF',
    3: 'BHD IQD JOD KWD LYD OMR TND',
    4: 'CLF UYW',
  }).flatMap(([places, codes]) => codes.split(' ').map((code) => [code, Number(places)] as const)),
);

export const placesOf = (currency: string): number => minorUnits.get(currency) ?? 2;

/** What is wrong with an amount that has more places than its currency; undefined: nothing. */
export function placesProblem(amount: string, currency: string): string | undefined {
  const places = placesOf(currency);
  const [, given = ''] = decimal.exec(amount) ?? [];
  if (given.length <= places) return undefined;
  const has = given.length === 1 ? 'a decimal place' : `${given.length} decimal places`;
  return `has ${has}; ${currency} has ${places === 0 ? 'none' : places}`;
}

/** `12.5` in EUR and de-DE: 12 | , | 50 | €. Does not depend on the machine's language and time zone. */
export function priceParts(amount: string, currency: string, locale: string, name: string): PriceParts {
  if (!decimal.test(amount))
    throw new TemplateError(
      `"${shown(amount)}" is not an amount for {{${name}}}; write it as 12.49, with a point and without a currency.`,
      { placeholder: name },
    );
  const problem = placesProblem(amount, currency);
  if (problem !== undefined)
    throw new TemplateError(`The amount "${shown(amount)}" for {{${name}}} ${problem}.`, {
      placeholder: name,
    });
  // A string is formatted digit by digit, without rounding to a binary fraction.
  const parts = formatterFor(amount, currency, locale).formatToParts(amount as `${number}`);
  const of = (...types: readonly Intl.NumberFormatPartTypes[]) =>
    parts
      .filter(({ type }) => types.includes(type))
      .map(({ value }) => value)
      .join('');
  return {
    whole: plain(of('minusSign', 'integer', 'group')),
    separator: of('decimal'),
    decimals: of('fraction'),
    symbol: plain(of('currency')),
    symbolFirst:
      parts.findIndex(({ type }) => type === 'currency') < parts.findIndex(({ type }) => type === 'integer'),
  };
}

export const money = (amount: string, currency: string, locale: string, name: string): string => {
  priceParts(amount, currency, locale, name);
  return plain(formatterFor(amount, currency, locale).format(amount as `${number}`));
};

/**
 * How far an amount is below another, in whole percent as the locale writes it: `-28 %`. Rounded towards zero, because a
 * shelf must not promise more than the till gives. Empty if it is not below it.
 */
export function percentOff(reduced: string, full: string, locale: string): string {
  const [now, before] = [reduced, full].map((amount) => {
    const [whole = '', places = ''] = amount.split('.');
    return decimal.test(amount) ? BigInt(whole + places.padEnd(6, '0')) : 0n;
  });
  if (now === undefined || before === undefined || before <= 0n || now >= before) return '';
  const percent = ((before - now) * 100n) / before;
  // The Arabic percent sign would turn the minus to the other side of the number.
  return percent === 0n ? '' : plain(percents('', locale).format(-Number(percent) / 100)).replace('٪', '%');
}

/** A calendar day, `2026-03-31`, as people of the locale write it in figures. */
export function day(value: string, locale: string, name: string): string {
  const time = /^\d{4}-\d{2}-\d{2}$/.test(value) ? Date.parse(`${value}T00:00:00Z`) : Number.NaN;
  if (Number.isNaN(time) || new Date(time).toISOString().slice(0, 10) !== value)
    throw new TemplateError(`"${shown(value)}" is not a day for {{${name}}}; write it as 2026-03-31.`, {
      placeholder: name,
    });
  return plain(days(locale).format(time));
}

/** Unicode versions differ in the space before a €, and that would change the image. */
const plain = (text: string): string =>
  text
    .replace(/[\u202f\u00a0]/g, '\u00a0')
    .replace(/[\u200e\u200f\u061c]/g, '')
    .replace(/[\uff00-\uffef]/g, (character) => character.normalize('NFKC'));

const shown = (value: string): string => (value.length > 40 ? `${value.slice(0, 40)}…` : value);

/** As people of the locale write it, but with all places of the currency where the amount has any. */
const formatterFor = (amount: string, currency: string, locale: string): Intl.NumberFormat =>
  (amount.includes('.') ? exact : usual)(currency, locale);

const usual = remembered((currency, locale) => formatter(currency, locale, {}));
const exact = remembered((currency, locale) => {
  const places = placesOf(currency);
  return formatter(currency, locale, { minimumFractionDigits: places, maximumFractionDigits: places });
});
const percents = remembered(
  (_, locale) =>
    new Intl.NumberFormat(language(locale), {
      style: 'percent',
      maximumFractionDigits: 0,
      numberingSystem: 'latn',
    }),
);

function formatter(
  currency: string,
  locale: string,
  digits: Pick<Intl.NumberFormatOptions, 'minimumFractionDigits' | 'maximumFractionDigits'>,
): Intl.NumberFormat {
  if (!/^[A-Z]{3}$/.test(currency))
    throw new TemplateError(
      `"${shown(currency)}" is not a currency; {{currency}} is three capital letters such as EUR.`,
      {
        placeholder: 'currency',
      },
    );
  return new Intl.NumberFormat(language(locale), {
    style: 'currency',
    currency,
    currencyDisplay: 'narrowSymbol',
    numberingSystem: 'latn',
    ...digits,
  });
}

const dayFormatter = remembered(
  (_, locale) =>
    new Intl.DateTimeFormat(language(locale), {
      dateStyle: 'short',
      timeZone: 'UTC',
      numberingSystem: 'latn',
    }),
);
const days = (locale: string) => dayFormatter('', locale);

function language(locale: string): string {
  let known: readonly string[] = [];
  try {
    known = Intl.NumberFormat.supportedLocalesOf(locale);
  } catch {
    // Not a language tag at all: the same error as for an unknown language.
  }
  const [first] = known;
  if (first === undefined)
    throw new TemplateError(
      `"${shown(locale)}" is not a language that is known; {{locale}} is one such as de-DE or en.`,
      {
        placeholder: 'locale',
      },
    );
  return first;
}

/** Making a formatter costs fifty times what using it costs. */
function remembered<T>(
  make: (currency: string, locale: string) => T,
): (currency: string, locale: string) => T {
  const made = new Map<string, T>();
  return (currency, locale) => {
    const key = `${currency} ${locale}`;
    let formatter = made.get(key);
    if (formatter === undefined) {
      formatter = make(currency, locale);
      if (made.size >= 200) made.clear();
      made.set(key, formatter);
    }
    return formatter;
  };
}
