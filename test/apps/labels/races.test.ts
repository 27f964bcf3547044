import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { assign, unassign } from '../../../src/apps/labels/assignments.ts';
import type { Change } from '../../../src/apps/labels/changes/change.ts';
import { lockLabels, readPages } from '../../../src/apps/labels/changes/tasks.ts';
import { laneOf } from '../../../src/apps/labels/mac.ts';
import { putProducts } from '../../../src/apps/labels/products.ts';
import { putTemplate } from '../../../src/apps/labels/templates.ts';
import { until } from '../../support/engine.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { hashAt, shelf } from './shelf.ts';
import { mac, type Shop, setPrice, shop, template, tenantId } from './support.ts';

/** A transaction that has done its work and waits to be told to commit. */
async function open(scene: Shop, work: (change: Change) => Promise<unknown>) {
  let commit = (): void => {};
  const told = new Promise<void>((resolve) => {
    commit = resolve;
  });
  let worked = (): void => {};
  const isDone = new Promise<void>((resolve) => {
    worked = resolve;
  });
  const ended = scene.change(async (change) => {
    await work(change);
    worked();
    await told;
  });
  await Promise.race([isDone, ended]);
  return {
    commit: async () => {
      commit();
      await ended;
    },
  };
}

const someoneWaits = (scene: Shop) =>
  until(
    'the other waits for a lock',
    async () =>
      (
        await scene.rows(
          `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        )
      ).length > 0,
  );

type Act = (change: Change) => Promise<unknown>;

/** The second begins while the first is open, and waits for it. */
async function crossing(scene: Shop, first: Act, second: Act): Promise<void> {
  const early = await open(scene, first);
  const late = scene.change(second);
  await someoneWaits(scene);
  await early.commit();
  await late;
}

const price = (sku: string, value: string) => (c: Change) => putProducts(c, 's1', [{ sku, price: value }]);
const design = (text: string) => (c: Change) => putTemplate(c, 'tag', template(text));
const show = (sku: string) => (c: Change) => assign(c, [{ mac: mac(1), sku, template: 'tag' }]);

/** The last task of a label, as text: price and version of the template. */
async function last(scene: Shop, number = 1) {
  const [page] = (await scene.tasks(number)).at(-1)?.pages ?? [];
  return { sku: page?.values.sku, price: page?.values.price, version: page?.template };
}

const versionInForce = async (scene: Shop) =>
  (await scene.rows<{ id: string }>('select version_id as id from labels.templates'))[0]?.id;

describe('LBL-2: changes that meet', () => {
  it('LBL-2 one changes the product, one the template of a label: the later task shows both', async () => {
    for (const isProductFirst of [true, false]) {
      const scene = await shop();
      const [product, drawing] = [price('P0', '2.00'), design('now {{price}}')];
      if (isProductFirst) await crossing(scene, product, drawing);
      else await crossing(scene, drawing, product);
      expect(await last(scene)).toEqual({ sku: 'P0', price: '2.00', version: await versionInForce(scene) });
      expect(await scene.tasks(1)).toHaveLength(3);
    }
  });

  it('LBL-2 one changes a product while another gives a label to it: the label shows the change', async () => {
    for (const isProductFirst of [true, false]) {
      const scene = await shop({ labels: 1, products: 3 });
      const [product, assignment] = [price('P2', '2.00'), show('P2')];
      if (isProductFirst) await crossing(scene, product, assignment);
      else await crossing(scene, assignment, product);
      expect(await last(scene)).toMatchObject({ sku: 'P2', price: '2.00' });
    }
  });

  it('LBL-2 one changes a template while another assigns it: the label shows the new version', async () => {
    for (const isTemplateFirst of [true, false]) {
      const scene = await shop({ labels: 1 });
      await scene.change((c) => unassign(c, [{ mac: mac(1) }]));
      const [drawing, assignment] = [design('now {{price}}'), show('P0')];
      if (isTemplateFirst) await crossing(scene, drawing, assignment);
      else await crossing(scene, assignment, drawing);
      expect(await last(scene)).toEqual({ sku: 'P0', price: '1.00', version: await versionInForce(scene) });
    }
  });

  it('LBL-2 a label that goes to another product while the old one is changed gets no image of the old one', async () => {
    const scene = await shop({ labels: 1, products: 2 });
    await crossing(scene, show('P0'), price('P1', '2.00'));
    expect(await scene.waiting(1, 'sku')).toEqual(['P1', 'P0']);
  });
});

describe('LBL-5: numbers and commits cross', () => {
  it('LBL-5 of two writers on one label the one that commits later comes later in the lane', async () => {
    const scene = await shop({ labels: 1, products: 1 });
    const seen: string[] = [];
    const first = await open(scene, price('P0', '2.00'));
    const second = scene.change(price('P0', '3.00')).then(() => seen.push('second'));
    await someoneWaits(scene);
    seen.push('first');
    await first.commit();
    await second;
    expect(seen).toEqual(['first', 'second']);
    expect(await scene.waiting(1)).toEqual(['1.00', '2.00', '3.00']);
  });

  it('LBL-5 the lane is locked before the number is drawn: the later commit is the one that stays on the label', async () => {
    // Straight into the lane, with nothing but the lane to keep two writers apart: without its lock the second would draw
    // the greater number, commit first, and the first, committing last, would stand before it.
    const scene = await shelf();
    const [task] = await scene.tasks(1);
    const into =
      (value: string) =>
      ({ tx }: Change) =>
        tx.query(`select tallyman.enqueue('labels.push', $1, lane => $2, tenant_id => $3)`, [
          JSON.stringify({ ...task, pages: [{ ...task?.pages[0], values: { price: value } }] }),
          laneOf(mac(1)),
          tenantId,
        ]);
    const first = await open(scene, into('2.00'));
    const committed: string[] = [];
    const second = scene.change(into('3.00')).then(() => committed.push('3.00'));
    // Without the lock it is through by now; with it, it waits.
    await Promise.race([second, sleep(500)]);
    committed.push('2.00');
    await first.commit();
    await second;
    expect((await scene.waiting(1)).slice(1)).toEqual(committed);
    await scene.start();
    await scene.done();
    expect(scene.accepted(1).at(-1)).toBe(await hashAt(committed.at(-1) ?? ''));
  });
});

const labelIds = async (scene: Shop) =>
  (await scene.rows<{ id: string }>('select id from labels.labels')).map(({ id }) => id);

describe('LBL-5: many writers', () => {
  it('LBL-5 whatever meets, nobody deadlocks, and the last task of each label is what was committed last', {
    timeout: 600_000,
  }, async () => {
    const random = seededRandom();
    const labels = 12;
    const scene = await shop({ labels, products: 5 });
    const some = <T>(items: readonly T[]) => items.filter(() => random.whole(3) === 0);
    const skus = ['P0', 'P1', 'P2', 'P3', 'P4'];
    const numbers = Array.from({ length: labels }, (_, i) => i + 1);
    const write = async (writer: number) => {
      for (let n = 0; n < 30; n += 1)
        await scene.change(async (c) => {
          const what = random.whole(10);
          const value = `${writer}.${String(n).padStart(2, '0')}`;
          if (what < 5) {
            const given = some(skus).reverse();
            if (given.length > 0)
              await putProducts(
                c,
                's1',
                given.map((sku) => ({ sku, price: value })),
              );
          } else if (what < 6) await putTemplate(c, 'tag', template(`${value} {{price}}`));
          else if (what < 9) {
            const given = some(numbers).reverse();
            if (given.length > 0)
              await assign(
                c,
                given.map((i) => ({ mac: mac(i), sku: random.of(skus), template: 'tag' })),
              );
          } else await unassign(c, [{ mac: mac(random.of(numbers)) }]);
          if (random.whole(4) === 0) await sleep(random.whole(10));
        });
    };
    await Promise.all(Array.from({ length: 8 }, (_, writer) => write(writer)));
    const now = await scene.change(async (c) => {
      const ids = await labelIds(scene);
      await lockLabels(c, ids);
      return readPages(c, ids);
    });
    expect(now).toHaveLength(labels);
    for (const { mac: label, versionId, values } of now) {
      const number = numbers.find((n) => mac(n) === label) ?? 0;
      const [page] = (await scene.tasks(number)).at(-1)?.pages ?? [];
      expect({ label, template: page?.template, values: page?.values }).toEqual({
        label,
        template: versionId,
        values,
      });
    }
    const [{ n = 0 } = {}] = await scene.rows<{ n: number }>('select count(*)::int as n from tallyman.jobs');
    expect(n).toBeGreaterThan(200);
  });
});

it('LBL-2 prices of one product by many at once: each of them is a task, in the order of their commits', async () => {
  // A connection for each: who waits for one for too long gives up.
  const scene = await shop({ engine: { poolSize: 45 } });
  await Promise.all(Array.from({ length: 40 }, (_, i) => setPrice(scene, 'P0', `${i + 2}.00`)));
  const prices = await scene.waiting(1);
  expect(new Set(prices).size).toBe(41);
  const [product] = await scene.rows<{ price: string }>('select price::text from labels.products');
  expect(prices.at(-1)).toBe(product?.price);
});
