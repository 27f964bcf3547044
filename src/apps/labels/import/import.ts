import type { Queryable } from '../../../engine/database/database.ts';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import type { Transactor } from '../../../engine/locks/exclusive.ts';
import { extraPlaces, mostProducts, type ProductChange, putProducts } from '../products.ts';
import { requireStore } from '../stores.ts';
import { type ProductLine, readProducts } from './csv.ts';

export interface ImportOptions {
  readonly store: string;
  readonly tenantId: string;
  readonly correlationId?: string;
  /** Do everything and roll it back, to report what would be changed and what would be refused. */
  readonly dryRun?: boolean;
  /** Lines in one transaction. Default 500. */
  readonly batch?: number;
  /** After each batch. */
  readonly onProgress?: (lines: number) => void;
}

export interface ImportReport {
  readonly lines: number;
  readonly made: number;
  readonly changed: number;
  readonly unchanged: number;
  /** Tasks for labels. */
  readonly labels: number;
  /** What was wrong, by line. */
  readonly bad: readonly { readonly line: number; readonly problem: string }[];
  /** Good lines that were left out because their batch has a bad line. */
  readonly left: number;
}

/**
 * Imports a file of products in batches, each in its own transaction: a batch with a bad line is not written at all, the
 * others are. The whole file is never in memory.
 */
export async function importProducts(
  on: Queryable & Transactor,
  input: AsyncIterable<string | Buffer>,
  options: ImportOptions,
): Promise<ImportReport> {
  const { currency } = await requireStore(on, options.tenantId, options.store);
  const sum = { lines: 0, made: 0, changed: 0, unchanged: 0, labels: 0, left: 0 };
  const bad: { line: number; problem: string }[] = [];
  for await (const lines of batches(readProducts(input), options.batch ?? 500)) {
    sum.lines += lines.length;
    const { products, problems } = judged(lines, currency);
    if (problems.length === 0) {
      try {
        const { made, changed, unchanged, labels } = await write(on, products, options);
        sum.made += made;
        sum.changed += changed;
        sum.unchanged += unchanged;
        sum.labels += labels;
      } catch (error) {
        if (!(error instanceof TallymanError)) throw error;
        const [first, last] = [lines[0]?.line ?? 0, lines.at(-1)?.line ?? 0];
        problems.push({ line: first, problem: `lines ${first} to ${last}: ${messageOf(error)}` });
      }
    }
    bad.push(...problems);
    if (problems.length > 0) sum.left += products.length;
    options.onProgress?.(sum.lines);
  }
  return { ...sum, bad };
}

/** Products of a text that is imported as a whole or not at all; at most as many as fit one transaction. */
export async function productsIn(text: string): Promise<ProductChange[]> {
  const lines: ProductLine[] = [];
  for await (const line of readProducts(once(text))) {
    lines.push(line);
    if (lines.length > mostProducts)
      throw new TallymanError('BAD_OPTION', `more than ${mostProducts} lines; send them in parts`);
  }
  const { products, problems } = judged(lines);
  if (problems.length > 0)
    throw new TallymanError(
      'BAD_OPTION',
      problems
        .slice(0, 20)
        .map(({ line, problem }) => `line ${line}: ${problem}`)
        .join('; '),
      { details: { lines: problems.slice(0, 100) } },
    );
  return products;
}

async function* once(text: string): AsyncGenerator<string> {
  yield text;
}

class Undone extends Error {}

async function write(
  on: Transactor,
  products: readonly ProductChange[],
  { store, tenantId, correlationId, dryRun }: ImportOptions,
): ReturnType<typeof putProducts> {
  let found: Awaited<ReturnType<typeof putProducts>> | undefined;
  try {
    await on.transaction(async (tx) => {
      const change = { tx, tenantId, ...(correlationId !== undefined && { correlationId }) };
      found = await putProducts(change, store, products);
      if (dryRun) throw new Undone();
    });
  } catch (error) {
    if (!(error instanceof Undone)) throw error;
  }
  return found as Awaited<ReturnType<typeof putProducts>>;
}

/** The good lines and the bad ones; a SKU that comes again in the same batch is bad. */
function judged(
  lines: readonly ProductLine[],
  currency: string | null = null,
): {
  products: ProductChange[];
  problems: { line: number; problem: string }[];
} {
  const products: ProductChange[] = [];
  const problems: { line: number; problem: string }[] = [];
  const firstAt = new Map<string, number>();
  for (const read of lines) {
    if ('problem' in read) {
      problems.push(read);
      continue;
    }
    const { line, product } = read;
    // In the store's currency, unless the line names another: then the product is judged when it is written.
    const places =
      product.attributes?.currency === undefined && typeof product.price === 'string'
        ? extraPlaces(product.price, currency)
        : undefined;
    if (places !== undefined) {
      problems.push({ line, problem: `the price ${product.price} of product "${product.sku}" ${places}` });
      continue;
    }
    const before = firstAt.get(product.sku);
    if (before === undefined) products.push(product);
    else problems.push({ line, problem: `product "${product.sku}" stands in line ${before} already` });
    firstAt.set(product.sku, before ?? line);
  }
  return { products, problems };
}

async function* batches<T>(items: AsyncIterable<T>, size: number): AsyncGenerator<T[]> {
  let batch: T[] = [];
  for await (const item of items) {
    batch.push(item);
    if (batch.length < size) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}
