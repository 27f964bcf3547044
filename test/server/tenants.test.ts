import { describe, expect, test } from 'vitest';
import { asTenant } from '../../src/engine/database/tenant.ts';
import { furnish, server } from './support.ts';

describe('a tenant sees and touches what is its own', () => {
  test('every table with a tenant is under row-level security', async () => {
    const { rows } = await server();
    const open = await rows(
      `select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
         join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
        where (n.nspname like 'tallyman%' or n.nspname in ('labels', 'rfid', 'passports')) and c.relkind in ('r', 'p') and not c.relispartition and not c.relrowsecurity`,
    );
    expect(open).toEqual([]);
  });

  test("under the server's role a query without a filter sees one tenant only", async () => {
    const test = await server();
    const { rows } = test;
    const a = await test.as('admin', 'a');
    const b = await test.as('admin', 'b');
    await furnish(test, a);
    await furnish(test, b);
    const tables = await rows<{ name: string }>('select name from tallyman.isolated_tables order by name');
    expect(tables.length).toBeGreaterThanOrEqual(10);
    const empty: string[] = [];
    for (const { name } of tables) {
      const all = await rows<{ tenant_id: string }>(`select tenant_id from ${name}`);
      const seen = await asTenant(test.tallyman.database, 'a', (scope) =>
        scope.query<{ tenant_id: string }>(`select tenant_id from ${name}`),
      );
      expect({ name, tenants: [...new Set(seen.rows.map((row) => row.tenant_id))] }).toEqual({
        name,
        tenants: seen.rows.length > 0 ? ['a'] : [],
      });
      expect(seen.rows.length).toBe(all.filter((row) => row.tenant_id === 'a').length);
      if (seen.rows.length === 0) empty.push(name);
    }
    // Those that nothing was written to in this test prove nothing.
    expect(tables.length - empty.length).toBeGreaterThanOrEqual(12);
    const views = await asTenant(test.tallyman.database, 'a', (scope) =>
      scope.query<{ tenant_id: string }>('select distinct tenant_id from tallyman.live_jobs'),
    );
    expect(views.rows).toEqual([{ tenant_id: 'a' }]);
  });

  test("nor can it write another tenant's rows, or move its own there", async () => {
    const test = await server();
    const b = await test.as('admin', 'b');
    const made = await furnish(test, b);
    const inA = (sql: string, values: unknown[] = []) =>
      asTenant(test.tallyman.database, 'a', (scope) => scope.query(sql, values));
    expect((await inA('update tallyman.jobs set kind = $1', ['stolen'])).rowCount).toBe(0);
    expect((await inA('delete from tallyman.dead_letters')).rowCount).toBe(0);
    await expect(
      inA(`insert into tallyman.dedupe_keys (tenant_id, kind, key, job_id) values ('b', 'k', 'x', 1)`),
    ).rejects.toThrow(/row-level security/);
    await expect(inA(`select tallyman.enqueue('noop', tenant_id => 'b')`)).rejects.toThrow(
      /row-level security/,
    );
    await expect(inA('select * from tallyman_server.tenants')).rejects.toThrow(/permission denied/);
    expect((await b('GET', `/v1/jobs/${made.job}`)).body.kind).toBe('noop');
  });

  test('a key of tenant A against every route and id of tenant B: 404 everywhere', async () => {
    const test = await server();
    const a = await test.as('admin', 'a');
    const b = await test.as('admin', 'b');
    const ids = await furnish(test, b);
    const before = await everything(test);
    const { paths } = (await test.ask('GET', '/v1/openapi.json')).body as {
      paths: Record<string, Record<string, { operationId?: string; security?: readonly object[] }>>;
    };
    const idOf: Record<string, string | undefined> = {
      jobs: ids.job,
      'dead-letters': ids.dead,
      lanes: ids.lane,
      webhooks: ids.webhook,
      deliveries: ids.delivery,
      schedules: ids.schedule,
      keys: ids.key,
      baskets: ids.basket,
      locations: ids.location,
      devices: ids.device,
      stores: ids.store,
      labels: ids.label,
      'label-types': ids.labelType,
      'label-templates': ids.labelTemplate,
      passports: ids.passport,
      'passports/items': ids.passport,
      'passports/products': ids.product,
      'passports/documents': ids.document,
      'passports/snapshots': ids.snapshot,
      'passports/rules': ids.rules,
      // Of versions, compiled and signed: test/apps/passports/tenants.test.ts.
      'passports/versions': ids.passport,
      'passports/exports': ids.passport,
    };
    const bodies: Record<string, unknown> = {
      'webhooks.redeliver_range': { from: '2020-01-01T00:00:00Z' },
      'webhooks.change': { description: 'mine' },
      'locations.change': { name: 'mine' },
      'devices.change': { name: 'mine' },
      'products.put': { products: [{ sku: 'P0', name: 'mine', price: '9.00' }] },
      'passport_documents.upload': [{ attribute: 'mine', value: '1' }],
      'passport_items.add': [{ serial: 'S-2', manufactured_on: '2027-01', manufactured_at: 'mine' }],
      'passports.status': { status: 'waste' },
      'passports.predecessors': { predecessors: [ids.passport] },
      'passports.cease': { reason: 'mine' },
      'passport_events.append': { type: 'cycles', occurred_at: '2027-01-01T00:00:00Z', data: {} },
      'passport_versions.issue': { rules: ids.rules },
      'passport_versions.issue_item': { rules: ids.rules },
      'passport_versions.issue_items': { rules: ids.rules },
      'passport_versions.revoke': { reason: 'mine' },
      'passport_exports.request': {},
    };
    const queries: Record<string, string> = {
      'label_templates.preview': '?store=s1&sku=P0',
      'passport_documents.upload': '?kind=data_sheet&name=sheet.json',
    };
    // Under a name of the other's these make one of their own.
    const makes = new Set([
      'schedules.put',
      'devices.put',
      'stores.put',
      'label_types.put',
      'label_templates.put',
      'passport_products.put',
    ]);
    const asked: string[] = [];
    for (const [path, methods] of Object.entries(paths))
      for (const [method, { operationId = '', security = [] }] of Object.entries(methods)) {
        // What is for everybody is for other tenants, too: test/apps/passports/public/link.test.ts says how much of it.
        if (security.some((each) => Object.keys(each).length === 0)) continue;
        const noun = /^\/v1\/(.*?)\/\{/.exec(path)?.[1] ?? '';
        // The time line of what is not there is empty; see below.
        if (!path.includes('{') || ['queues', 'timeline'].includes(noun) || makes.has(operationId)) continue;
        const url = path
          .replace(/\{\w+\}/, idOf[noun] ?? `no id for ${noun}`)
          .replace('{sku}', 'P0')
          .replace('{page}', '1')
          .concat(queries[operationId] ?? '');
        const answer = await a(method.toUpperCase(), url, bodies[operationId]);
        expect({ operationId, status: answer.status, code: answer.body?.error?.code }).toEqual({
          operationId,
          status: 404,
          code: 'NOT_FOUND',
        });
        expect(JSON.stringify(answer.body)).not.toContain('secret');
        asked.push(operationId);
      }
    expect(asked.length).toBeGreaterThanOrEqual(20);
    for (const subject of [
      `job:${ids.job}`,
      `basket:${ids.basket}`,
      `label:${ids.label}`,
      `passport:${ids.passport}`,
      'battery:S-1',
      `document:${ids.document}`,
    ])
      expect((await a('GET', `/v1/timeline/${subject}`)).body).toEqual({
        items: [],
        next_cursor: null,
        next_before: null,
      });
    expect((await b('GET', `/v1/timeline/job:${ids.job}`)).body.items).not.toEqual([]);
    expect(await everything(test)).toEqual(before);
    // A schedule of the same name is another schedule.
    expect((await a('PUT', '/v1/schedules/nightly', { cron: '0 4 * * *', kind: 'noop' })).status).toBe(200);
    expect((await b('GET', '/v1/schedules/nightly')).body.cron).toBe('0 3 * * *');
  });

  test('lists show no other tenant, and what all share is for keys of the home tenant', async () => {
    const test = await server();
    const a = await test.as('admin', 'a');
    const b = await test.as('admin', 'b');
    await furnish(test, b);
    for (const path of [
      '/v1/jobs',
      '/v1/dead-letters',
      '/v1/lanes',
      '/v1/webhooks',
      '/v1/schedules',
      '/v1/devices',
      '/v1/baskets',
      '/v1/movements',
      '/v1/stores',
      '/v1/labels',
      '/v1/label-types',
      '/v1/label-templates',
      '/v1/passports',
      '/v1/passports/products',
      '/v1/passports/documents',
      '/v1/passports/facts',
      '/v1/passports/snapshots',
      '/v1/passports/rules',
      '/v1/passports/versions',
      '/v1/passports/exports',
    ])
      expect({ path, items: (await a('GET', path)).body.items }).toEqual({ path, items: [] });
    const queues = (await a('GET', '/v1/queues')).body.items;
    expect(queues.every((queue: { ready: number }) => queue.ready === 0)).toBe(true);
    expect(
      (await b('GET', '/v1/queues')).body.items.some((queue: { ready: number }) => queue.ready > 0),
    ).toBe(true);
    for (const [method, path] of [
      ['POST', '/v1/queues/default/pause'],
      ['GET', '/v1/tenants'],
      ['GET', '/metrics'],
    ] as const)
      expect({ path, status: (await a(method, path)).status }).toEqual({ path, status: 403 });
    const home = await test.as('admin');
    expect((await home('POST', '/v1/queues/default/pause')).status).toBe(204);
  });
});

const everything = async ({ rows }: { rows<R>(sql: string): Promise<R[]> }) => ({
  jobs: await rows('select * from tallyman.jobs order by id'),
  letters: await rows('select * from tallyman.dead_letters order by id'),
  lanes: await rows('select * from tallyman.lanes order by id'),
  endpoints: await rows('select * from tallyman_webhooks.endpoints order by id'),
  schedules: await rows('select * from tallyman.schedules order by name'),
  keys: await rows('select id, revoked_at from tallyman_server.api_keys order by id'),
  baskets: await rows('select * from rfid.baskets order by id'),
  stores: await rows('select * from labels.stores order by id'),
  products: await rows('select * from labels.products order by id'),
  templates: await rows('select * from labels.templates order by id'),
  labels: await rows('select * from labels.labels order by id'),
  pages: await rows('select * from labels.pages order by label_id, page'),
  documents: await rows('select * from passports.document_versions order by id'),
  snapshots: await rows('select * from passports.snapshots order by id'),
  rules: await rows('select * from passports.rule_packages order by id'),
  batteries: await rows('select * from passports.items order by passport_id'),
  passportAudit: await rows('select * from passports.audit_events order by position'),
});
