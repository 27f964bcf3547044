import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { integer, pgTable } from 'drizzle-orm/pg-core';
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js';
import pg from 'pg';
import postgres from 'postgres';
import { fromDrizzle } from '../../src/adapters/drizzle.ts';
import { conforms } from './conformance.ts';

const parcels = pgTable('parcels', { id: integer().primaryKey() });

conforms({
  name: 'Drizzle on pg',
  open: (url) => {
    const pool = new pg.Pool({ connectionString: url });
    const db = drizzle(pool);
    return {
      transaction: (work) =>
        db.transaction((tx) =>
          work({
            native: tx,
            tx: fromDrizzle(tx),
            insert: (id) => tx.insert(parcels).values({ id }),
            enqueueJsonb: (payload) => tx.execute(sql`select tallyman.enqueue('any', ${payload}::jsonb)`),
          }),
        ),
      wrapRoot: () => fromDrizzle(db as never),
      close: () => pool.end(),
    };
  },
});

conforms({
  name: 'Drizzle on postgres.js',
  open: (url) => {
    const client = postgres(url, { max: 1 });
    const db = drizzlePostgresJs(client);
    return {
      transaction: (work) =>
        db.transaction((tx) =>
          work({
            native: tx,
            tx: fromDrizzle(tx),
            insert: (id) => tx.insert(parcels).values({ id }),
            // With this driver Drizzle leaves it to its caller to write the text.
            enqueueJsonb: (payload) =>
              tx.execute(sql`select tallyman.enqueue('any', ${JSON.stringify(payload)}::jsonb)`),
          }),
        ),
      wrapRoot: () => fromDrizzle(db as never),
      close: () => client.end(),
    };
  },
});
