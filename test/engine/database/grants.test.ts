import { expect, onTestFinished, test } from 'vitest';
import { prepareTenants } from '../../../src/engine/database/tenant.ts';
import { engine, until } from '../../support/engine.ts';

/** As migrate.ts takes it. */
const migrationLock = 0x7411_0001;

test('a process that starts while another one migrates waits for its grants, instead of failing with "tuple concurrently updated"', async () => {
  const { tallyman, rows } = await engine();
  const { database } = tallyman;
  const migrating = await database.dedicated('migration');
  onTestFinished(() => migrating.end());
  // A privilege is missing, so that the process has something to grant.
  await rows(`revoke delete on tallyman.jobs from ${database.tenantRole}`);
  await migrating.query('select pg_advisory_lock($1)', [migrationLock]);
  await migrating.query('begin');
  await migrating.query(`select tallyman.grant_to_tenants('tallyman.jobs')`);
  await migrating.query(`revoke delete on tallyman.jobs from ${database.tenantRole}`);
  const starting = prepareTenants(database).then(
    () => 'ready',
    (error: Error) => error.message,
  );
  await until('it waits', async () => {
    const [found] = await rows<{ waiting: boolean }>(
      `select exists (select 1 from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock') as waiting`,
    );
    return found?.waiting === true;
  });
  await migrating.query('commit');
  await migrating.query('select pg_advisory_unlock($1)', [migrationLock]);
  expect(await starting).toBe('ready');
  const [granted] = await rows<{ may: boolean }>(
    `select has_table_privilege(tallyman.tenant_role(), 'tallyman.jobs', 'delete') as may`,
  );
  expect(granted?.may).toBe(true);
});
