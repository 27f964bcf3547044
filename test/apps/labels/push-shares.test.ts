import { describe, expect, onTestFinished, test } from 'vitest';
import { assign } from '../../../src/apps/labels/assignments.ts';
import { createGateway } from '../../../src/apps/labels/gateways/index.ts';
import { putLabelType } from '../../../src/apps/labels/label-types.ts';
import { putLabels } from '../../../src/apps/labels/labels.ts';
import { putProducts } from '../../../src/apps/labels/products.ts';
import { putStore } from '../../../src/apps/labels/stores.ts';
import { putTemplate } from '../../../src/apps/labels/templates.ts';
import { Gateways } from '../../../src/apps/labels/worker/gateways.ts';
import { PushShares } from '../../../src/apps/labels/worker/push-shares.ts';
import { until } from '../../support/engine.ts';
import { hashesAt, shelf } from './shelf.ts';
import { mac, nowhere, setPrice, template } from './support.ts';

describe('SEC-5: the slots of a worker', () => {
  test('SEC-5 a tenant alone has all of them, beside another half', () => {
    const shares = new PushShares(10);
    for (let nth = 0; nth < 10; nth += 1) expect(shares.take('a', 0)).toBe(0);
    expect(shares.take('b', 0)).toBe(0);
    expect(shares.take('a', 0)).toBeGreaterThan(0);
    for (let nth = 0; nth < 5; nth += 1) shares.give('a', 1000);
    expect(shares.take('a', 0)).toBeGreaterThan(0);
    shares.give('a', 1000);
    expect(shares.take('a', 0)).toBe(0);
    expect(shares.take('a', 0)).toBeGreaterThan(0);
    // An hour later the other is forgotten.
    expect(shares.take('a', 3_600_001)).toBe(0);
  });

  test('SEC-5 what is put off comes back as fast as slots become free, two minutes later at most', () => {
    const shares = new PushShares(10);
    shares.take('b', 0);
    for (let nth = 0; nth < 5; nth += 1) shares.take('a', 0);
    const waits = Array.from({ length: 5000 }, () => shares.take('a', 0));
    expect(waits[0]).toBe(500);
    expect(waits[9]).toBe(2000);
    expect(waits[99]).toBe(20_000);
    expect(Math.max(...waits)).toBe(120_000);
  });

  test('SEC-5 one slot is had by every tenant', () => {
    const shares = new PushShares(1);
    expect(shares.take('a', 0)).toBe(0);
    shares.give('a', 1);
    expect(shares.take('b', 0)).toBe(0);
  });
});

test('SEC-5: gateways of one tenant that never answer do not keep the labels of another from their images', async () => {
  const scene = await shelf({ labels: 2 });
  let [held, most] = [0, 0];
  const { promise: answer, resolve } = Promise.withResolvers<void>();
  const gateways = new Gateways(scene.box, {
    connect: (settings, guard) => {
      const gateway = createGateway(settings, guard);
      const push = () => {
        held += 1;
        most = Math.max(most, held);
        return answer;
      };
      return settings.url === nowhere.url ? Object.assign(gateway, { push }) : gateway;
    },
  });
  onTestFinished(() => gateways.close());
  await scene.start({ concurrency: 4, kinds: scene.kinds({ gateways, slots: 4 }) });
  await scene.done();
  onTestFinished(() => resolve());
  await scene.change(async (c) => {
    await putStore(c, scene.box, { code: 's1', gateway: nowhere });
    await putLabelType(c, { name: 'small', width: 200, height: 200, palette: 'bw' });
    await putTemplate(c, 'tag', template());
    await putProducts(c, 's1', [{ sku: 'P0', name: 'P', price: '1.00' }]);
    const macs = Array.from({ length: 12 }, (_, nth) => mac(100 + nth));
    await putLabels(
      c,
      macs.map((each) => ({ mac: each, store: 's1', type: 'small' })),
    );
    await assign(
      c,
      macs.map((each) => ({ mac: each, sku: 'P0', template: 'tag' })),
    );
  }, 'acme');
  await until('it has its share', () => held === 2);
  await setPrice(scene, 'P0', '2.00');
  const wanted = await hashesAt('1.00', '2.00');
  await until('the other tenant has its images', () =>
    [1, 2].every((number) => scene.accepted(number).length === wanted.length),
  );
  expect(most).toBe(2);
  resolve();
});
