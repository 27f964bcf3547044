import { parseDecimal, type Quantity, toJson } from '../quantity.ts';
import type { DocumentProblemCode, QuantityJson } from '../types.ts';
import { unitNamed } from '../units.ts';
import type { Problems } from './problems.ts';
import type { TableRow } from './table.ts';

const longestText = 2000;

/** The cells of one row, read by type. What is wrong goes to the problems with row and column, and gives undefined. */
export class Cells {
  readonly row: number;
  readonly #cells: ReadonlyMap<string, string>;
  readonly #problems: Problems;

  constructor({ row, cells }: TableRow, problems: Problems) {
    this.row = row;
    this.#cells = cells;
    this.#problems = problems;
  }

  wrong(column: string, code: DocumentProblemCode, message: string): undefined {
    this.#problems.add(code, this.row, column, message);
    return undefined;
  }

  optional(column: string): string {
    const text = this.#cells.get(column) ?? '';
    if (text.length > longestText) {
      this.wrong(column, 'INVALID_VALUE', `the text is longer than ${longestText} characters`);
      return '';
    }
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be in there
    if (/[\u0000-\u001f\u007f]/.test(text))
      this.wrong(column, 'INVALID_VALUE', 'the text has control characters');
    return text;
  }

  text(column: string): string | undefined {
    return this.optional(column) || this.wrong(column, 'MISSING_VALUE', `there is no ${column}`);
  }

  oneOf(column: string, values: readonly string[]): string | undefined {
    const text = this.text(column);
    if (text === undefined || values.includes(text)) return text;
    return this.wrong(column, 'INVALID_VALUE', `"${text}" is none of ${values.join(', ')}`);
  }

  /** Empty means no. */
  flag(column: string): boolean | undefined {
    const text = this.optional(column).toLowerCase();
    if (['yes', 'true'].includes(text)) return true;
    if (['no', 'false', ''].includes(text)) return false;
    return this.wrong(column, 'INVALID_VALUE', `"${text}" is neither yes nor no`);
  }

  integer(column: string): number | undefined {
    const text = this.text(column);
    if (text === undefined) return undefined;
    if (/^-?\d{1,15}$/.test(text)) return Number(text);
    return this.wrong(column, 'INVALID_VALUE', `"${text}" is no integer`);
  }

  /** A decimal in the unit of a type; another column names the unit. */
  decimal(
    column: string,
    unitColumn: string,
    type: string,
    { least }: { readonly least?: bigint } = {},
  ): QuantityJson | undefined {
    const symbol = unitNamed(type)?.symbol ?? '';
    const unit = this.#cells.get(unitColumn) ?? '';
    if (unit !== symbol) {
      this.wrong(
        unitColumn,
        'WRONG_UNIT',
        `the unit is "${unit}" where ${symbol} is expected; convert the value`,
      );
      return undefined;
    }
    const value = this.#number(column, type);
    if (!value) return undefined;
    if (least !== undefined && value.value < least)
      return this.wrong(column, 'INVALID_VALUE', 'the number must not be negative');
    if (!Number.isSafeInteger(Number(value.value)))
      return this.wrong(column, 'INVALID_VALUE', 'the number has too many digits');
    return toJson(value);
  }

  #number(column: string, type: string): Quantity | undefined {
    const text = this.text(column);
    if (text === undefined) return undefined;
    const value = parseDecimal(type, text);
    if (value) return value;
    if (/^-?[\d.]*,\d+$/.test(text))
      return this.wrong(
        column,
        'DECIMAL_COMMA',
        `"${text}" has a decimal comma; write a point, and nothing between thousands`,
      );
    return this.wrong(column, 'INVALID_VALUE', `"${text}" is no decimal number such as 12.5`);
  }

  /** A CAS registry number, or empty. */
  cas(column: string): string | undefined {
    const text = this.optional(column);
    if (text === '') return '';
    const [, first, second, check] = /^(\d{2,7})-(\d{2})-(\d)$/.exec(text) ?? [];
    if (first === undefined || second === undefined)
      return this.wrong(column, 'INVALID_VALUE', `"${text}" is no CAS number such as 7429-90-5`);
    const sum = [...`${first}${second}`]
      .reverse()
      .reduce((total, digit, at) => total + Number(digit) * (at + 1), 0);
    if (sum % 10 === Number(check)) return text;
    return this.wrong(
      column,
      'CAS_CHECK_DIGIT',
      `the check digit of the CAS number ${text} must be ${sum % 10}; look the number up again`,
    );
  }
}
