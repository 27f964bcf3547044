import { textArray } from '../database/array-literal.ts';
import { Database, type Queryable } from '../database/database.ts';
import type { PreparedStatement, RawRow, Value } from '../database/hot-query.ts';

/*
 * How TypeScript calls the engine's functions in SQL: one module for each, of the same name, which gives names to the
 * parameters and reads the answer. No other module of the engine writes such a call.
 *
 * Here a list of names becomes a list of positions, once, when the module is loaded. test/engine/sql.test.ts compares
 * each list with PostgreSQL's own. Where SQL has a default, TypeScript has none: what is not given is left out.
 */

/** An array as PostgreSQL writes it, `{1,2}`: the driver would quote and escape each number. */
export type ArrayText = `{${string}}`;

/** What may be given for a parameter of a type. */
interface Types {
  readonly text: string;
  readonly json: string;
  readonly boolean: boolean;
  readonly smallint: number;
  readonly integer: number;
  readonly bigint: string | number;
  readonly 'double precision': number;
  readonly interval: string;
  readonly uuid: string;
  readonly 'timestamp with time zone': string;
  readonly 'text[]': readonly string[];
  readonly 'uuid[]': ArrayText;
  readonly 'smallint[]': readonly number[];
  readonly 'integer[]': readonly number[] | ArrayText;
  readonly 'bigint[]': readonly string[] | ArrayText;
  readonly 'boolean[]': ArrayText;
}

type TypeName = keyof Types;

/** In the order that SQL has them. `p_lease_ms` is `leaseMs` here. With `?`: SQL has a default. */
export type Parameters = Readonly<Record<string, TypeName | `${TypeName}?`>>;

type Given<T> = T extends `${infer Name extends TypeName}?`
  ? Types[Name]
  : T extends TypeName
    ? Types[T]
    : never;

/** Every parameter by its name. */
export type AllArguments<P extends Parameters> = { readonly [N in keyof P]: Given<P[N]> | null };

/** The same, without those that SQL has a default for. */
export type SomeArguments<P extends Parameters> = {
  readonly [N in keyof P as P[N] extends `${string}?` ? never : N]: Given<P[N]> | null;
} & {
  readonly [N in keyof P as P[N] extends `${string}?` ? N : never]?: Given<P[N]> | null | undefined;
};

export type ArgumentsOf<F> = F extends SqlFunction<infer P> ? AllArguments<P> : never;
export type SomeArgumentsOf<F> = F extends SqlFunction<infer P> ? SomeArguments<P> : never;

export interface SqlFunctionOptions {
  /** Columns of its answer, or expressions over them. Without: one value, as column `answer`. */
  readonly columns?: readonly string[];
  /** Functions for everybody to call have parameters without a prefix. Default `p_`. */
  readonly prefix?: '' | 'p_';
}

/** A function of schema `tallyman`. */
export class SqlFunction<P extends Parameters> {
  readonly name: string;
  readonly parameters: P;
  /** A call with all parameters, in their order; see `values`. */
  readonly statement: PreparedStatement;
  readonly #names: readonly (string & keyof P)[];
  readonly #prefix: string;
  readonly #columns: readonly string[] | undefined;

  constructor(name: string, parameters: P, { columns, prefix = 'p_' }: SqlFunctionOptions = {}) {
    this.name = name;
    this.parameters = parameters;
    this.#names = Object.keys(parameters);
    this.#prefix = prefix;
    this.#columns = columns;
    this.statement = { name: `tm_${name}`, text: this.#text(this.#names.map((_, i) => `$${i + 1}`)) };
  }

  /** The parameter's name in SQL. */
  nameInSql(parameter: string): string {
    return this.#prefix + parameter.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  }

  /** In the order that `statement` wants. */
  values(args: AllArguments<P>): Value[] {
    return this.#names.map((name) => args[name] as Value);
  }

  /** Calls it on the hot path: a prepared statement, all parameters in, the cells of each row out as text. */
  run(database: Pick<Database, 'run'>, args: AllArguments<P>): Promise<RawRow[]> {
    return database.run(this.statement, this.values(args));
  }

  /** Calls it with what is given. Answers the rows. */
  rows<Row extends object>(on: Queryable, args: SomeArguments<P>): Promise<Row[]> {
    return this.#ask(on, args);
  }

  /** The same, where the answer is one value. */
  async value<T>(on: Queryable, args: SomeArguments<P>): Promise<T> {
    const [row] = await this.#ask<{ readonly answer: T }>(on, args);
    return row?.answer as T;
  }

  /** The same, where that is an int8[]. On the hot path where `on` is the database itself. */
  async ids(on: Queryable, args: AllArguments<P>): Promise<string[]> {
    if (on instanceof Database) return idsOf((await this.run(on, args))[0]?.[0]);
    // The client may read arrays, or leave them as text.
    const [row] = await this.#ask<{ answer: unknown[] | string | null }>(on, args);
    return Array.isArray(row?.answer) ? row.answer.map(String) : idsOf(row?.answer);
  }

  /** Calls it once for each, in one statement. */
  async forEach(on: Queryable, all: readonly AllArguments<P>[]): Promise<void> {
    const places = this.#names.map((name) => `e."${name}"`);
    const columns = this.#names.map((name) => `"${name}" ${this.parameters[name]?.replace('?', '')}`);
    await on.query(`${this.#text(places)} from json_to_recordset($1) as e (${columns.join(', ')})`, [
      JSON.stringify(all),
    ]);
  }

  /**
   * Every parameter goes as text and gets its type in SQL. `on` may be a transaction of another library, and such a client
   * decides by the type that the server names how to write a value: it would write JSON that is text already as a text in
   * JSON, or refuse a list.
   */
  async #ask<Row extends object>(on: Queryable, given: Readonly<Record<string, unknown>>): Promise<Row[]> {
    const names = this.#names.filter((name) => given[name] !== undefined);
    const isComplete = names.length === this.#names.length;
    const places = names.map((name, i) => {
      const place = `$${i + 1}::text::${this.parameters[name]?.replace('?', '')}`;
      return isComplete ? place : `${this.nameInSql(name)} => ${place}`;
    });
    const { rows } = await on.query(
      this.#text(places),
      names.map((name) => asText(given[name])),
    );
    return rows as object[] as Row[];
  }

  #text(places: readonly string[]): string {
    const call = `tallyman.${this.name}(${places.join(', ')})`;
    return this.#columns ? `select ${this.#columns.join(', ')} from ${call}` : `select ${call} as answer`;
  }
}

function asText(value: unknown): string | null {
  if (value === null || typeof value === 'string') return value;
  if (!Array.isArray(value)) return String(value);
  return textArray(value.map((element: unknown) => (element === null ? null : String(element))));
}

/** Reads an int8[] as PostgreSQL writes it. */
export function idsOf(cell: string | null | undefined): string[] {
  return cell && cell.length > 2 ? cell.slice(1, -1).split(',') : [];
}

/** Writes one. */
export function arrayOf<T>(items: Iterable<T>, textOf: (item: T) => string): ArrayText {
  let text = '';
  for (const item of items) text += text.length > 0 ? `,${textOf(item)}` : textOf(item);
  return `{${text}}`;
}

/** For a parameter of type interval. */
export const milliseconds = (ms: number): string => `${ms} milliseconds`;
