import type { Queryable } from '../engine/database/database.ts';
import { TallymanError } from '../engine/errors.ts';
import { missingPackage } from '../engine/resilience/service.ts';

export type Rows = Awaited<ReturnType<Queryable['query']>>;

/** Puts a function that runs one statement into the shape that Tallyman takes. */
export function transactionOf(run: (text: string, values: readonly unknown[]) => Promise<Rows>): Queryable {
  return { query: ((text, values = []) => run(text, values)) as Queryable['query'] };
}

/** Rows of a library that answers with a plain list of them. */
export function rowsOf(list: readonly unknown[]): Rows {
  return { rows: list as Rows['rows'], rowCount: list.length };
}

/** The text between the parameters, and the value of each in the order of the text. */
export function piecesOf(text: string, values: readonly unknown[]) {
  const pieces = text.split(/\$(\d+)/);
  return {
    texts: pieces.filter((_, i) => i % 2 === 0),
    values: pieces.filter((_, i) => i % 2 === 1).map((number) => values[Number(number) - 1]),
  };
}

/** `call`: how a user of the library gets a transaction. */
export function notATransaction(adapter: string, call: string): TallymanError {
  return new TallymanError(
    'BAD_OPTION',
    `${adapter} needs a transaction: outside of one each statement commits by itself. Pass what ${call} gives you.`,
  );
}

/** The library is loaded when it is first used: the package has it as an optional peer. */
export async function loaded<T>(load: Promise<T>, name: string, wanter: string): Promise<T> {
  try {
    return await load;
  } catch (error) {
    throw missingPackage(error, name, wanter);
  }
}
