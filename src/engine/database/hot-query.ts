import type pg from 'pg';

/** A statement that is prepared once a connection. */
export interface PreparedStatement {
  readonly name: string;
  readonly text: string;
}

export type Value = string | number | boolean | null | readonly (string | number)[];

/** Text in, text out: the raw cells of a row. */
export type RawRow = readonly (string | null)[];

/** The driver's end of the wire, as far as it is needed here. */
interface Wire {
  readonly stream: { cork(): void; uncork(): void };
  /** By name; the driver adds a statement when the server has accepted it. */
  readonly parsedStatements: Readonly<Record<string, string>>;
  parse(statement: { readonly name: string | undefined; readonly text: string }): void;
  bind(portal: { readonly statement: string | undefined; readonly values: (string | null)[] }): void;
  execute(): void;
  sync(): void;
}

/**
 * A query of the hot paths. The driver's own asks the server to describe the columns, and builds a result from that. A
 * caller that knows the columns skips it, which saves a tenth of a millisecond on an idle system.
 */
export class HotQuery implements pg.Submittable {
  /** Undefined: not prepared but parsed each time. The driver reads it, and `text`. */
  readonly name: string | undefined;
  readonly text: string;
  /** Set by the driver. */
  callback: ((error: Error | null, rows?: RawRow[]) => void) | undefined;
  readonly #values: readonly Value[];
  readonly #rows: RawRow[] = [];

  constructor({ name, text }: PreparedStatement, values: readonly Value[], prepare: boolean) {
    this.name = prepare ? name : undefined;
    this.text = text;
    this.#values = values;
  }

  submit(connection: pg.Connection): void {
    const wire = connection as unknown as Wire;
    const { name, text } = this;
    wire.stream.cork();
    if (name === undefined || wire.parsedStatements[name] === undefined) wire.parse({ name, text });
    wire.bind({ statement: name, values: this.#values.map(toText) });
    wire.execute();
    wire.sync();
    wire.stream.uncork();
  }

  handleDataRow({ fields }: { readonly fields: RawRow }): void {
    this.#rows.push(fields);
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.callback?.(null, this.#rows);
  }

  handleError(error: Error): void {
    this.callback?.(error);
  }
}

function toText(value: Value): string | null {
  if (value === null || typeof value === 'string') return value;
  if (typeof value === 'object') return `{${value.map(quoted).join(',')}}`;
  return String(value);
}

const quoted = (value: string | number): string =>
  typeof value === 'number' ? String(value) : `"${value.replace(/["\\]/g, '\\$&')}"`;
