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

const decimal = /^-?\d{1,12}(?:\.\d{1,6})?$/;

/** `12.5` in EUR and de-DE: 12 | , | 50 | €. Does not depend on the machine's language and time zone. */
export function priceParts(amount: string, currency: string, locale: string, name: string): PriceParts {
  if (!decimal.test(amount))
    throw new TemplateError(
      `"${shown(amount)}" is not an amount for {{${name}}}; write it as 12.49, with a point and without a currency.`,
      { placeholder: name },
    );
  // A string is formatted digit by digit, without rounding to a binary fraction.
  const parts = formatter(currency, locale).formatToParts(amount as `${number}`);
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
  return plain(formatter(currency, locale).format(amount as `${number}`));
};

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

const formatter = remembered((currency, locale) => {
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
  });
});

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
