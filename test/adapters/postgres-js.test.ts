import postgres from 'postgres';
import { fromPostgresJs } from '../../src/adapters/postgres-js.ts';
import { conforms } from './conformance.ts';

conforms({
  name: 'postgres.js',
  open: (url) => {
    const sql = postgres(url, { max: 2 });
    return {
      transaction: (work) =>
        sql.begin((tx) =>
          work({
            native: tx,
            tx: fromPostgresJs(tx),
            insert: (id) => tx`insert into parcels (id) values (${id})`,
            enqueueJsonb: (payload) => tx`select tallyman.enqueue('any', ${tx.json(payload as never)})`,
          }),
        ),
      wrapRoot: () => fromPostgresJs(sql as never),
      close: () => sql.end(),
    };
  },
});
