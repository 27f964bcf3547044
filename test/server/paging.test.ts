import { expect, test } from 'vitest';
import { registerKind, server } from './support.ts';

interface Operation {
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly responses: Readonly<Record<string, { content?: Record<string, { schema: { $ref?: string } }> }>>;
}

test('API-2: every list takes limit and cursor, and answers items and next_cursor', async () => {
  const { ask } = await server();
  const { body } = await ask('GET', '/v1/openapi.json');
  const schemas = body.components.schemas as Record<string, { properties?: Record<string, unknown> }>;
  const lists = Object.entries(body.paths as Record<string, { get?: Operation }>).flatMap(
    ([path, { get }]) => {
      const name = get?.responses['200']?.content?.['application/json']?.schema.$ref?.split('/').at(-1) ?? '';
      const { properties } = schemas[name] ?? {};
      if (!get || !properties || !('items' in properties)) return [];
      const asked = (get.parameters ?? []).filter((each) => each.in === 'query').map((each) => each.name);
      return [
        { path, paged: asked.includes('limit') && asked.includes('cursor') && 'next_cursor' in properties },
      ];
    },
  );
  expect(lists.length).toBeGreaterThan(15);
  expect(lists.filter(({ paged }) => !paged)).toEqual([]);
});

test('API-2: lists by name and of keys and tenants come page by page, each thing once', {
  timeout: 300_000,
}, async () => {
  const test = await server();
  const admin = await test.as('admin');
  await registerKind(test, 'noop');
  const names = ['Zoo', 'ant', 'bee', 'émeu', 'cow'];
  for (const name of names) {
    await admin('PATCH', `/v1/queues/${encodeURIComponent(name)}`, { max_running: 1 });
    await admin('PUT', `/v1/schedules/${encodeURIComponent(name)}`, { cron: '0 3 * * *', kind: 'noop' });
    await admin('POST', '/v1/keys', { name, role: 'auditor' });
    const { body } = await admin('POST', '/v1/locations', { name });
    await admin('PUT', `/v1/devices/${encodeURIComponent(name)}`, {
      location_id: body.id,
      role: 'dock-door',
    });
    await admin('PUT', `/v1/label-types/${encodeURIComponent(name)}`, {
      width: 200,
      height: 200,
      palette: 'bw',
    });
  }
  for (const id of ['t-1', 't-2', 't-3', 't-4']) await test.as('producer', id);
  for (const [list, nameOf] of [
    ['queues', 'name'],
    ['schedules', 'name'],
    ['keys', 'id'],
    ['tenants', 'id'],
    ['locations', 'name'],
    ['devices', 'serial'],
    ['label-types', 'name'],
    ['event-types', 'event_type'],
    ['audit', 'id'],
  ] as const) {
    const all = (await admin('GET', `/v1/${list}?limit=200`)).body;
    const paged: string[] = [];
    let cursor: string | null = null;
    let pages = 0;
    do {
      const more: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const { status, body } = await admin('GET', `/v1/${list}?limit=2${more}`);
      expect({ list, status }).toEqual({ list, status: 200 });
      expect(body.items.length).toBeLessThanOrEqual(2);
      paged.push(...body.items.map((item: Record<string, string>) => item[nameOf]));
      cursor = body.next_cursor;
      pages += 1;
    } while (cursor !== null);
    expect({ list, names: paged }).toEqual({
      list,
      names: all.items.map((item: Record<string, string>) => item[nameOf]),
    });
    expect(pages).toBeGreaterThan(1);
    expect(new Set(paged).size).toBe(paged.length);
  }
  expect((await admin('GET', '/v1/queues?limit=201')).status).toBe(400);
});
