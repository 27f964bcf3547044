import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { assign } from '../../src/apps/labels/assignments.ts';
import type { Change } from '../../src/apps/labels/changes/change.ts';
import type { LabelSimulatorOptions } from '../../src/apps/labels/gateways/simulator/index.ts';
import { images } from '../../src/apps/labels/images.ts';
import { putProducts } from '../../src/apps/labels/products.ts';
import { putStore } from '../../src/apps/labels/stores.ts';
import { putTemplate } from '../../src/apps/labels/templates.ts';
import { mac, type Shop, type ShopOptions, shop, template } from '../apps/labels/support.ts';

export const labelWorker = fileURLToPath(new URL('labels-worker.ts', import.meta.url));

/** A simulated gateway in another process; gone when the test is. */
export async function gatewayProcess(options: LabelSimulatorOptions): Promise<string> {
  const program = fileURLToPath(new URL('labels-gateway.ts', import.meta.url));
  const child = fork(program, [JSON.stringify(options)], { execArgv: [] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [{ url }] = (await once(child, 'message')) as [{ url: string }];
  return url;
}

/** A shop whose gateway is that process, and a record of what was committed for each label, in that order. */
export async function recordedShop(
  gatewayUrl: string,
  { timeoutMs = 3000, ...options }: ShopOptions & { readonly timeoutMs?: number },
): Promise<Shop> {
  const scene = await shop(options);
  await scene.rows(`create table counted (mac text primary key, n integer not null default 0)`);
  await scene.rows(
    `create table recorded (mac text, n integer, price text, version bigint, primary key (mac, n))`,
  );
  await scene.rows('insert into counted (mac) select mac from labels.labels');
  const gateway = {
    kind: 'aims',
    url: gatewayUrl,
    company: 'c',
    store: 's',
    username: 'u',
    password: 'p',
    timeoutMs,
  };
  await scene.change((c) => putStore(c, scene.box, { code: 's1', gateway }));
  // What they begin with.
  await scene.rows(
    `insert into recorded select mac, 0, '1.00', (select version_id from labels.templates) from labels.labels`,
  );
  return scene;
}

/**
 * Inside a change, for the pages that it has written, whose labels it holds until it commits: so the numbers of a label
 * are the order of the commits, drawn by nobody but the test.
 */
async function record({ tx }: Change): Promise<void> {
  await tx.query(
    `with now as (
       select l.mac, p.price::text as price, t.version_id as version
         from labels.pages g join labels.labels l on l.id = g.label_id join labels.products p on p.id = g.product_id
         join labels.templates t on t.id = g.template_id where g.xmin = pg_current_xact_id()::xid
     ), numbered as (
       update counted c set n = c.n + 1 from now where c.mac = now.mac returning c.mac, c.n)
     insert into recorded select u.mac, u.n, now.price, now.version from numbered u join now on now.mac = u.mac`,
  );
}

export async function changePrices(
  change: Change,
  prices: readonly { readonly sku: string; readonly price: string }[],
): Promise<void> {
  await putProducts(change, 's1', prices);
  await record(change);
}

export async function showProducts(
  change: Change,
  shown: readonly { readonly number: number; readonly sku: string }[],
): Promise<void> {
  await assign(
    change,
    shown.map(({ number, sku }) => ({ mac: mac(number), sku, template: 'tag' })),
  );
  await record(change);
}

export async function redraw(change: Change, text: string): Promise<void> {
  await putTemplate(change, 'tag', template(text));
  await record(change);
}

/** What each label should have been sent, by the record: the hashes, in order, without repetitions. */
export async function expectedImages(scene: Shop): Promise<Map<string, string[]>> {
  const designs = new Map(
    (await scene.rows<{ id: string; svg: string }>('select id, svg from labels.template_versions')).map(
      ({ id, svg }) => [id, svg],
    ),
  );
  const rows = await scene.rows<{ mac: string; price: string; version: string }>(
    'select mac, price, version from recorded order by mac, n',
  );
  const panel = { width: 200, height: 200, palette: 'bw' } as const;
  const expected = new Map<string, string[]>();
  for (const { mac: label, price, version } of rows) {
    const { hash } = await images.render('test', {
      svg: designs.get(version) ?? '',
      values: { price },
      panel,
    });
    const known = expected.get(label) ?? [];
    if (known.at(-1) !== hash) known.push(hash);
    expected.set(label, known);
  }
  return expected;
}

/** What the gateway accepted for a label: the hashes, in order, without repetitions. */
export async function acceptedImages(gatewayUrl: string, label: string): Promise<(string | null)[]> {
  const response = await fetch(`${gatewayUrl}/simulator/labels/${label}`);
  const { images: accepted } = (await response.json()) as { images: { hash: string | null }[] };
  return accepted.map(({ hash }) => hash).filter((hash, i, all) => hash !== all[i - 1]);
}

export async function acceptedCount(gatewayUrl: string): Promise<number> {
  const response = await fetch(`${gatewayUrl}/simulator`);
  return ((await response.json()) as { accepted: number }).accepted;
}
