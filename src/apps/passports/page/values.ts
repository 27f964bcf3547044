import { attributeNamed } from '../compile/attributes.ts';
import type { FieldResult, Json } from '../compile/index.ts';
import { formatDecimal } from '../compile/quantity.ts';
import { type Language, texts } from './texts.ts';

/** Values as people read them. Nothing is rounded: what is shown is what was signed. */

const isObject = (json: Json): json is { readonly [key: string]: Json } =>
  typeof json === 'object' && json !== null && !Array.isArray(json);

interface Shown {
  readonly value: number | string;
  readonly scale: number;
  readonly unit: string;
}

/** Integers beyond 2^53 are texts in a proof. */
export const isQuantity = (json: Json): json is Shown & { readonly [key: string]: Json } =>
  isObject(json) &&
  (typeof json.value === 'number' || (typeof json.value === 'string' && /^-?\d+$/.test(json.value))) &&
  typeof json.scale === 'number' &&
  typeof json.unit === 'string';

export function formatNumber(decimal: string, language: Language): string {
  const [, sign = '', whole = '', fraction] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(decimal) ?? [];
  const group = language === 'de' ? '.' : ',';
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, group) : whole;
  const point = language === 'de' ? ',' : '.';
  return `${sign === '-' ? '−' : ''}${grouped}${fraction === undefined ? '' : point + fraction}`;
}

/** Zeros at the end say nothing to a reader: 580.0 kg is 580 kg. */
function decimalOf({ value, scale }: Shown): string {
  const text = formatDecimal({ value: BigInt(value), scale });
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

export function formatValue(value: Json, language: Language): string {
  const { yes, no, units, records } = texts[language];
  if (typeof value === 'boolean') return value ? yes : no;
  if (typeof value === 'number') return formatNumber(String(value), language);
  if (typeof value === 'string') return value;
  if (value === null) return '–';
  if (Array.isArray(value)) return value.map((each) => formatValue(each, language)).join('; ');
  if (!isObject(value)) return '';
  if (isQuantity(value)) {
    const unit = units[value.unit] ?? value.unit;
    return `${formatNumber(decimalOf(value), language)}${unit && ` ${unit}`}`;
  }
  const { component, name, mass } = value;
  if (typeof component === 'string' && typeof name === 'string' && mass !== undefined)
    return `${name} (${component}) ${formatValue(mass, language)}`;
  if (typeof value.records === 'number') return records(value.records);
  if (typeof value.record === 'string') return records(1);
  return Object.entries(value)
    .map(([key, each]) => `${key}: ${formatValue(each, language)}`)
    .join(', ');
}

/** Words that the compiler gives for a few fields, in the reader's language. */
export function formatField(name: string, value: Json, language: Language): string {
  const words: Readonly<Record<string, string>> =
    name === 'category' ? texts[language].categories : name === 'status' ? texts[language].statuses : {};
  if (typeof value === 'string' && Object.hasOwn(words, value)) return words[value] ?? value;
  if (name === 'manufacturingDate' && typeof value === 'string') return formatDate(value, language);
  return formatValue(value, language);
}

/** What stands for a field that has no value, and why. */
export function formatMissing(result: Exclude<FieldResult, { status: 'value' }>, language: Language): string {
  const { notYet, undetermined, outOfScope, reasons } = texts[language];
  if (result.status === 'not_yet_in_force') return notYet(formatDate(result.from, language), result.article);
  const why = Object.hasOwn(reasons, result.reason) ? reasons[result.reason] : result.reason;
  return `${result.status === 'undetermined' ? undetermined : outOfScope}: ${why}`;
}

const monthNames: Readonly<Record<Language, readonly string[]>> = {
  en: 'January February March April May June July August September October November December'.split(' '),
  de: 'Januar Februar März April Mai Juni Juli August September Oktober November Dezember'.split(' '),
};

/** Of an RFC 3339 text in UTC, or of YYYY-MM, without the clock or the locale of the machine. */
export function formatDate(text: string, language: Language): string {
  const [, year, month, day] = /^(\d{4})-(\d\d)(?:-(\d\d))?/.exec(text) ?? [];
  const name = monthNames[language][Number(month) - 1];
  if (!year || name === undefined) return text;
  if (day === undefined) return `${name} ${year}`;
  return `${Number(day)}${language === 'de' ? '.' : ''} ${name} ${year}`;
}

export const titleOf = (name: string, language: Language): string =>
  (attributeNamed(name)?.title[language] ?? name).replaceAll('CO2', 'CO₂');

export const isMaterial = (json: Json): json is { readonly [key: string]: Json } =>
  isObject(json) && typeof json.component === 'string' && typeof json.name === 'string' && 'mass' in json;

export const isLink = (text: string): boolean => /^https?:\/\/[^\s"<>]+$/.test(text) && URL.canParse(text);
