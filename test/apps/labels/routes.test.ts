import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { furnishLabels, labelMac, labelSvg, server } from '../../server/support.ts';

const csv = { 'content-type': 'text/csv' };

describe('labels over the API', () => {
  test('LBL-1, LBL-2: from a store to tasks; what a gateway needs is never shown', async () => {
    const test = await server();
    const ask = await test.as('admin');
    await furnishLabels(ask);
    const store = await ask('GET', '/v1/stores/s1');
    expect(store.body).toMatchObject({
      code: 's1',
      gateway: { kind: 'aims', url: 'http://127.0.0.1:9' },
      labels: 1,
      products: 1,
    });
    expect(JSON.stringify(store.body)).not.toContain('secret');
    const changed = await ask('POST', '/v1/stores/s1/products', { products: [{ sku: 'P0', price: '2.00' }] });
    expect(changed.body).toEqual({ made: 0, changed: 1, unchanged: 0, labels: 1 });
    const label = await ask('GET', '/v1/labels/00:15:9d:a0:10:2b');
    expect(label.body).toMatchObject({ mac: labelMac, state: 'waiting', pages: [{ page: 1, sku: 'P0' }] });
    const job = await ask('GET', `/v1/jobs/${label.body.pages[0].wanted_job}`);
    expect(job.body).toMatchObject({
      kind: 'labels.push',
      lane: `label:${labelMac}`,
      correlation_id: changed.headers.get('x-correlation-id'),
      payload: { pages: [{ values: { price: '2.00' } }] },
    });
    expect((await ask('POST', `/v1/labels/${labelMac}/resync`)).body).toEqual({ labels: 1 });
    expect((await ask('POST', '/v1/stores/s1/resync')).body).toEqual({ labels: 1 });
    expect((await ask('DELETE', `/v1/labels/${labelMac}/pages/1`)).status).toBe(204);
    expect((await ask('GET', `/v1/labels/${labelMac}`)).body.pages[0]).toMatchObject({ sku: null });
    expect((await ask('GET', '/v1/labels?state=waiting&store=s1')).body.items).toHaveLength(1);
    expect((await ask('DELETE', `/v1/labels/${labelMac}`)).status).toBe(204);
    expect((await ask('DELETE', '/v1/stores/s1/products/P0')).status).toBe(204);
    expect((await ask('DELETE', '/v1/label-templates/tag')).status).toBe(204);
    expect((await ask('DELETE', '/v1/label-types/small')).status).toBe(204);
    expect((await ask('DELETE', '/v1/stores/s1')).status).toBe(204);
    const audit = await test.rows<{ resource: string }>(
      `select resource from tallyman_server.audit_events where action = 'labels.resync'`,
    );
    expect(audit).toEqual([{ resource: labelMac }]);
  });

  test('the calls that docs/labels.md shows work', async () => {
    const test = await server();
    const ask = await test.as('admin');
    const page = await readFile(new URL('../../../docs/labels.md', import.meta.url), 'utf8');
    const calls = [...page.matchAll(/^put (PUT|POST) +(\S+) '([^']+)'$/gm)];
    expect(calls).toHaveLength(6);
    for (const [, method = '', path = '', body = ''] of calls) {
      const answer = await ask(method, `/v1${path}`, body);
      expect({ path, status: answer.status, error: answer.body.error }).toEqual({ path, status: 200 });
    }
    expect((await ask('GET', '/v1/labels/00159DA0102B')).body).toMatchObject({ state: 'waiting' });
    expect((await ask('GET', '/v1/labels/00159DA0102B/preview')).status).toBe(200);
  });

  test('LBL-6: previews are PNG', async () => {
    const test = await server();
    const ask = await test.as('admin');
    await furnishLabels(ask);
    for (const path of [
      `/v1/labels/${labelMac}/preview`,
      '/v1/label-templates/tag/preview?store=s1&sku=P0&palette=bwr',
    ]) {
      const key = await test.keys.create({ tenantId: 'default', name: path.slice(0, 20), role: 'auditor' });
      const response = await fetch(`${test.url}${path}`, { headers: { authorization: `Bearer ${key.key}` } });
      expect(response.headers.get('content-type')).toBe('image/png');
      const png = Buffer.from(await response.arrayBuffer());
      expect(png.subarray(0, 8)).toEqual(Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]));
      expect([png.readUInt32BE(16), png.readUInt32BE(20)]).toEqual([200, 200]);
    }
    expect((await ask('GET', `/v1/labels/${labelMac}/preview?page=2`)).status).toBe(404);
  });

  test('LBL-10: refusals have a status, a code and a reason, and leave nothing', async () => {
    const test = await server();
    const ask = await test.as('admin');
    await furnishLabels(ask);
    const before = await test.rows('select id from tallyman.jobs order by id');
    const refused = async (answer: ReturnType<typeof ask>) => {
      const { status, body } = await answer;
      return [status, body.error?.code, body.error?.message];
    };
    const wrong = labelSvg.replace('price', 'weight');
    expect(await refused(ask('PUT', '/v1/label-templates/tag', { svg: wrong }))).toEqual([
      400,
      'LABEL_TEMPLATE',
      expect.stringContaining('{{weight}}'),
    ]);
    const to = (sku: string, mac = labelMac) =>
      ask('POST', '/v1/label-assignments', { assignments: [{ mac, sku, template: 'tag' }] });
    expect(await refused(to('nope'))).toEqual([404, 'NOT_FOUND', 'there is no product "nope" in store "s1"']);
    expect(await refused(to('P0', '00159DA0FFFF'))).toEqual([
      404,
      'NOT_FOUND',
      'there is no label 00159DA0FFFF',
    ]);
    expect(await refused(to('P0', '12'))).toEqual([400, 'BAD_OPTION', expect.stringContaining('12 hex')]);
    expect(await refused(ask('DELETE', '/v1/label-templates/tag'))).toEqual([
      409,
      'BAD_STATE',
      expect.any(String),
    ]);
    const gateway = { kind: 'aims', url: 'ftp://x' };
    expect(await refused(ask('PUT', '/v1/stores/s2', { gateway }))).toEqual([
      400,
      'VALIDATION_ERROR',
      expect.any(String),
    ]);
    expect(await test.rows('select id from tallyman.jobs order by id')).toEqual(before);
  });

  test('LBL-2, LBL-10: products as CSV, all of them or none, bad lines by number', async () => {
    const test = await server();
    const ask = await test.as('producer');
    await furnishLabels(await test.as('admin'));
    const put = (text: string) => ask('POST', '/v1/stores/s1/products', text, csv);
    const taken = await put('sku,name,price,unit\nP0,Milk,1.10,l\nP1,"Bread, dark",2.49,\n');
    expect(taken).toMatchObject({ status: 200, body: { made: 1, changed: 1, unchanged: 0, labels: 1 } });
    const bad = await put('sku,name,price\nP2,Rice,1.00\nP3,Oats,cheap\nP4,Flour\n');
    expect(bad).toMatchObject({ status: 400, body: { error: { code: 'BAD_OPTION' } } });
    expect(bad.body.error.message).toMatch(/line 3: the price of product "P3".*; line 4: has 2 fields/);
    expect(await test.rows(`select sku from labels.products order by sku`)).toEqual([
      { sku: 'P0' },
      { sku: 'P1' },
    ]);
    expect((await ask('POST', '/v1/jobs', 'sku\n1', csv)).status).toBe(400);
    expect((await put('sku,name\n\u0000,x')).body.error.code).toBe('VALIDATION_ERROR');
  });

  test('who may do what: producers change prices, operators labels, admins gateways', async () => {
    const test = await server();
    await furnishLabels(await test.as('admin'));
    const tries = [
      ['PUT', '/v1/stores/s1', { name: 'x' }, ['admin']],
      ['PUT', '/v1/label-types/small', { width: 200, height: 200, palette: 'bw' }, ['admin', 'operator']],
      ['POST', `/v1/labels/${labelMac}/resync`, undefined, ['admin', 'operator']],
      ['POST', '/v1/stores/s1/products', { products: [{ sku: 'P0' }] }, ['admin', 'operator', 'producer']],
      ['GET', '/v1/labels', undefined, ['admin', 'operator', 'auditor']],
    ] as const;
    for (const role of ['admin', 'operator', 'auditor', 'producer'] as const) {
      const ask = await test.as(role);
      for (const [method, path, body, allowed] of tries) {
        const { status } = await ask(method, path, body);
        expect({ role, path, status: status < 300 }).toEqual({
          role,
          path,
          status: (allowed as readonly string[]).includes(role),
        });
      }
    }
  });

  test('the same request with its Idempotency-Key is one change', async () => {
    const test = await server();
    const ask = await test.as('admin');
    await furnishLabels(ask);
    const once = { 'idempotency-key': 'price-1' };
    const body = { products: [{ sku: 'P0', price: '5.00' }] };
    const first = await ask('POST', '/v1/stores/s1/products', body, once);
    const again = await ask('POST', '/v1/stores/s1/products', body, once);
    expect(again.body).toEqual(first.body);
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    expect(await test.rows('select id from tallyman.jobs')).toHaveLength(2);
  });
});
