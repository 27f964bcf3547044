import type { Queryable } from '../engine/database/database.ts';
import { notATransaction, rowsOf, transactionOf } from './transaction.ts';

/** What `prisma.$transaction(async (tx) => …)` gives. */
export interface PrismaTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: Prisma lets its caller name the type of the answer
  $queryRawUnsafe(query: string, ...values: any[]): PromiseLike<any>;
}

/**
 * An interactive transaction of Prisma, for `tx`.
 *
 * @example
 * await prisma.$transaction(async (tx) => {
 *   await tx.order.create({ data: { id: 1 } });
 *   await tallyman.enqueue(pick, { order: 1 }, { tx: fromPrisma(tx) });
 * });
 */
export function fromPrisma(tx: PrismaTransaction): Queryable {
  // Prisma hides what opens and closes connections from a transaction.
  if (typeof tx?.$queryRawUnsafe !== 'function' || '$connect' in tx)
    throw notATransaction('fromPrisma', '`prisma.$transaction(async (tx) => …)`');
  return transactionOf(async (text, values) => rowsOf(await tx.$queryRawUnsafe(text, ...values)));
}
