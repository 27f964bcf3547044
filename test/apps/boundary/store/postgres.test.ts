import { boundaryComponent } from '../../../../src/apps/boundary/component.ts';
import { PostgresFactStore } from '../../../../src/apps/boundary/store/postgres/store.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { engineComponent, migrate } from '../../../../src/engine/database/migrate.ts';
import { prepareTenants } from '../../../../src/engine/database/tenant.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { emptyDatabase } from '../../../support/postgres.ts';
import { describeStore, type Opened } from './conformance.ts';
import { describeCrossings } from './conformance-crossings.ts';

async function open(): Promise<Opened> {
  const { url, drop } = await emptyDatabase();
  const databases = await Promise.all([Database.connect({ url }), Database.connect({ url })]);
  const [database, another] = databases;
  await migrate(database, { components: [engineComponent, eventsComponent, boundaryComponent] });
  await prepareTenants(database);
  const store = new PostgresFactStore(database);
  const other = new PostgresFactStore(another);
  return {
    store,
    other,
    stop: async () => {
      await Promise.all([store.stop(), other.stop()]);
      await Promise.all(databases.map((each) => each.close()));
      await drop();
    },
  };
}

describeStore('Postgres', open);
describeCrossings('Postgres', open);
