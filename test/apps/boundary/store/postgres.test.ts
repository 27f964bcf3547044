import { PostgresFactStore } from '../../../../src/apps/boundary/store/postgres/store.ts';
import { describeStore } from './conformance.ts';
import { storeDatabases } from './databases.ts';
import type { Opened } from './scene.ts';

async function open(): Promise<Opened> {
  const { databases, close } = await storeDatabases();
  const store = new PostgresFactStore(databases[0]);
  const other = new PostgresFactStore(databases[1]);
  return {
    store,
    other,
    stop: async () => {
      await Promise.all([store.stop(), other.stop()]);
      await close();
    },
  };
}

describeStore('Postgres', open);
