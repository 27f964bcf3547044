import { CsvError, parse } from 'csv-parse';
import { messageOf } from '../../../engine/errors.ts';
import { checkProduct, type ProductChange } from '../products.ts';

/** One line of a file of products: a product, or what is wrong with it. */
export type ProductLine =
  | { readonly line: number; readonly product: ProductChange }
  | { readonly line: number; readonly problem: string };

interface Parsed {
  readonly record: readonly string[];
  readonly info: { readonly lines: number };
}

/** A record longer than 64 KiB means that a closing quote is missing. */
const longestRecord = 64 * 1024;

/**
 * Reads products line by line: the first line names the columns, `sku` among them; `name` and `price` are the product's
 * own, every other column is an attribute. An empty price means none, an empty name is not given.
 */
export async function* readProducts(
  input: AsyncIterable<string | Buffer>,
): AsyncGenerator<ProductLine, void, undefined> {
  let columns: readonly string[] | undefined;
  try {
    for await (const { record, info } of records(input)) {
      if (columns) {
        yield { line: info.lines, ...productOf(columns, record) };
        continue;
      }
      columns = record.map((name) => name.trim());
      const problem = headerProblem(columns);
      if (problem !== undefined) {
        yield { line: info.lines, problem };
        return;
      }
    }
    if (!columns) yield { line: 1, problem: 'the file is empty: its first line names the columns' };
  } catch (error) {
    // After a quote that is never closed, the remaining lines cannot be separated.
    if (!(error instanceof CsvError)) throw error;
    yield { line: Number(error.lines ?? 0) || 1, problem: `cannot be read: ${messageOf(error)}` };
  }
}

/** Separated by commas or, as some spreadsheets write it, by semicolons: whichever the first line uses. */
async function* records(input: AsyncIterable<string | Buffer>): AsyncGenerator<Parsed> {
  const pieces = input[Symbol.asyncIterator]();
  let head = '';
  for (let next = await pieces.next(); !next.done; next = await pieces.next()) {
    head += next.value.toString();
    if (head.includes('\n') || head.length > longestRecord) break;
  }
  const [first = ''] = head.split('\n');
  const parser = parse({
    bom: true,
    delimiter: first.includes(';') && !first.includes(',') ? ';' : ',',
    info: true,
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: longestRecord,
  });
  const feeding = feed(parser, head, pieces);
  try {
    yield* parser as AsyncIterable<Parsed>;
  } finally {
    parser.destroy();
    await feeding.catch(() => {});
  }
}

async function feed(
  parser: ReturnType<typeof parse>,
  head: string,
  pieces: AsyncIterator<string | Buffer>,
): Promise<void> {
  const write = async (piece: string | Buffer): Promise<void> => {
    if (parser.write(piece)) return;
    await new Promise<void>((resolve) => {
      // Both go with the first of the two: a listener left behind at every pause adds up over a long file.
      const settle = (): void => {
        parser.off('drain', settle).off('close', settle);
        resolve();
      };
      parser.on('drain', settle).on('close', settle);
    });
  };
  try {
    await write(head);
    for (let next = await pieces.next(); !next.done && !parser.destroyed; next = await pieces.next())
      await write(next.value);
    parser.end();
  } catch (error) {
    parser.destroy(error as Error);
  }
}

function headerProblem(columns: readonly string[]): string | undefined {
  if (!columns.includes('sku')) return `there is no column "sku"; the columns are ${columns.join(', ')}`;
  const twice = columns.find((name, at) => columns.indexOf(name) !== at);
  return twice === undefined ? undefined : `the column "${twice}" is there twice`;
}

function productOf(
  columns: readonly string[],
  record: readonly string[],
): { readonly product: ProductChange } | { readonly problem: string } {
  if (record.length !== columns.length)
    return { problem: `has ${record.length} fields; the first line names ${columns.length} columns` };
  const fields = new Map(columns.map((name, at) => [name, (record[at] ?? '').trim()]));
  const [sku = '', name, price] = ['sku', 'name', 'price'].map((key) => fields.get(key));
  for (const key of ['sku', 'name', 'price']) fields.delete(key);
  const product: ProductChange = {
    sku,
    ...(name && { name }),
    ...(price !== undefined && { price: price === '' ? null : price }),
    ...(fields.size > 0 && { attributes: Object.fromEntries(fields) }),
  };
  try {
    checkProduct(product);
    return { product };
  } catch (error) {
    return { problem: messageOf(error) };
  }
}
