/** Ours, in process: what `AppendFact` does once a call has arrived. */
import { boundaryComponent } from '../../../../src/apps/boundary/component.ts';
import { Zones } from '../../../../src/apps/boundary/domain/zones.ts';
import { Intake } from '../../../../src/apps/boundary/intake.ts';
import { Admission } from '../../../../src/apps/boundary/limits/admission.ts';
import { defaultLimits } from '../../../../src/apps/boundary/limits/fill.ts';
import { PostgresFactStore } from '../../../../src/apps/boundary/store/postgres/store.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { engineComponent, migrate } from '../../../../src/engine/database/migrate.ts';
import { prepareTenants } from '../../../../src/engine/database/tenant.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { FROM, TO } from '../facts.ts';
import { countEntries, preload } from '../preload.ts';
import type { System } from './system.ts';

export const tallyman: System = async ({ url, size }) => {
  const database = await Database.connect({ url, poolSize: 4 });
  await migrate(database, { components: [engineComponent, eventsComponent, boundaryComponent] });
  await prepareTenants(database);
  const zones = new Zones([FROM, TO]);
  const store = new PostgresFactStore(database);
  const intake = new Intake({
    zone: zones.resolve(FROM, 'zone'),
    zones,
    store,
    admission: new Admission({ store, limits: defaultLimits, freeBytes: async () => undefined }),
    objects: { hold: async () => undefined },
    holdGraceMs: 600_000,
  });
  await preload(database, size.trimmed);
  const caller = { tenantId: 'default', authorize: () => {} };
  return {
    append: (fact) => intake.append(caller, fact),
    count: () => countEntries(database),
    async stop() {
      await store.stop();
      await database.close();
    },
  };
};
