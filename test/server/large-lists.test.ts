import { expect, test } from 'vitest';
import { furnish, server } from './support.ts';

const count = 12;

/** One row in each list becomes twelve with about a megabyte each, as tenants can make them. */
const large = [
  `insert into labels.products (store_id, tenant_id, sku, name, attributes)
   select p.store_id, p.tenant_id, 'large-' || n, p.name, jsonb_build_object('text', repeat('x', 1000000))
     from labels.products p, generate_series(1, ${count}) n`,
  `insert into tallyman_webhooks.webhook_deliveries
     (tenant_id, delivery_id, event_id, endpoint_id, attempt, status, response_headers, response_body, duration_ms, attempted_at)
   select d.tenant_id, d.id, d.event_id, d.endpoint_id, n, 'FAILED', jsonb_build_object('h', repeat('x', 500000)),
          repeat('x', 500000), 1, now()
     from tallyman_webhooks.dispatches d, generate_series(1, ${count}) n`,
  `insert into passports.document_versions (id, tenant_id, document_id, number, format, sha256, bytes, state, problems)
   select gen_random_uuid(), v.tenant_id, v.document_id, n + 1, v.format, v.sha256, v.bytes, 'REJECTED',
          jsonb_build_array(jsonb_build_object('message', repeat('x', 1000000)))
     from passports.document_versions v, generate_series(1, ${count}) n`,
];

test('SEC-5: pages of products, attempts of webhooks and documents end where they get large, and the next ones go on there', async () => {
  const scene = await server();
  const ask = await scene.as('admin', 'acme');
  const { webhook } = await furnish(scene, ask);
  await scene.tallyman.database.transaction(async (tx) => {
    // Documents are only ever changed by the steps of their chain.
    await tx.query('set local session_replication_role = replica');
    for (const statement of large) await tx.query(statement);
  });
  for (const [path, there] of [
    ['/v1/stores/s1/products', count + 1],
    [`/v1/webhooks/${webhook}/deliveries`, count],
    ['/v1/passports/documents', count + 1],
  ] as const) {
    const ids = new Set<string>();
    const sizes: number[] = [];
    for (let cursor = ''; ; ) {
      const { status, body } = await ask('GET', `${path}?limit=200${cursor}`);
      expect({ path, status }).toEqual({ path, status: 200 });
      sizes.push(body.items.length);
      for (const item of body.items) ids.add(item.id ?? item.sku ?? item.attempt);
      expect(Object.keys(body.items[0])).not.toContain('bytesBefore');
      if (body.next_cursor === null) break;
      cursor = `&cursor=${body.next_cursor}`;
    }
    expect({ path, ids: ids.size }).toEqual({ path, ids: there });
    expect(Math.max(...sizes)).toBeLessThanOrEqual(6);
  }
});
