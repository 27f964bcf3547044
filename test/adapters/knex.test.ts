import knex from 'knex';
import { fromKnex } from '../../src/adapters/knex.ts';
import { conforms } from './conformance.ts';

conforms({
  name: 'Knex',
  open: (url) => {
    const db = knex({ client: 'pg', connection: url });
    return {
      transaction: (work) =>
        db.transaction((trx) =>
          work({
            native: trx,
            tx: fromKnex(trx),
            insert: (id) => trx('parcels').insert({ id }).then(),
            enqueueJsonb: (payload) =>
              trx.raw(`select tallyman.enqueue('any', ?::jsonb)`, [JSON.stringify(payload)]).then(),
          }),
        ),
      wrapRoot: () => fromKnex(db),
      close: () => db.destroy(),
    };
  },
});
