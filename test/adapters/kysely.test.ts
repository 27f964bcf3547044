import { type ControlledTransaction, Kysely, PostgresDialect, sql, type Transaction } from 'kysely';
import pg from 'pg';
import { fromKysely } from '../../src/adapters/kysely.ts';
import { conforms, type Opened, type Running } from './conformance.ts';

interface Tables {
  readonly parcels: { readonly id: number };
}

const opened = (url: string): Kysely<Tables> =>
  new Kysely<Tables>({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url }) }) });

const running = (trx: Transaction<Tables> | ControlledTransaction<Tables>): Running => ({
  native: trx,
  tx: fromKysely(trx),
  insert: (id) => trx.insertInto('parcels').values({ id }).execute(),
  enqueueJsonb: (payload) =>
    sql`select tallyman.enqueue('any', ${JSON.stringify(payload)}::jsonb)`.execute(trx),
});

const rest = (db: Kysely<Tables>): Pick<Opened, 'wrapRoot' | 'close'> => ({
  wrapRoot: () => fromKysely(db),
  close: () => db.destroy(),
});

conforms({
  name: 'Kysely',
  open: (url) => {
    const db = opened(url);
    return { transaction: (work) => db.transaction().execute((trx) => work(running(trx))), ...rest(db) };
  },
});

conforms({
  name: 'Kysely, controlled',
  open: (url) => {
    const db = opened(url);
    return {
      transaction: async (work) => {
        const trx = await db.startTransaction().execute();
        try {
          await work(running(trx));
        } catch (error) {
          await trx.rollback().execute();
          throw error;
        }
        await trx.commit().execute();
      },
      ...rest(db),
    };
  },
});
