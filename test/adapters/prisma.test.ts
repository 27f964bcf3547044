import { PrismaPg } from '@prisma/adapter-pg';
import { fromPrisma } from '../../src/adapters/prisma.ts';
import { conforms } from './conformance.ts';
import { PrismaClient } from './prisma/generated/client.ts';

conforms({
  name: 'Prisma',
  open: (url) => {
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
    return {
      transaction: (work) =>
        prisma.$transaction(
          (tx) =>
            work({
              native: tx,
              tx: fromPrisma(tx),
              insert: (id) => tx.parcel.create({ data: { id } }),
              enqueueJsonb: (payload) => tx.$queryRaw`select tallyman.enqueue('any', ${payload}::jsonb)`,
            }),
          // On a busy machine a transaction may take longer than the 5 s that Prisma allows.
          { maxWait: 60_000, timeout: 60_000 },
        ),
      wrapRoot: () => fromPrisma(prisma),
      close: () => prisma.$disconnect(),
    };
  },
});
