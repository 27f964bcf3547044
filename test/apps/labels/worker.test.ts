import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { assign, unassign } from '../../../src/apps/labels/assignments.ts';
import { createGateway } from '../../../src/apps/labels/gateways/index.ts';
import { putLabels, removeLabels, resync } from '../../../src/apps/labels/labels.ts';
import { putProducts } from '../../../src/apps/labels/products.ts';
import { putStore } from '../../../src/apps/labels/stores.ts';
import { putTemplate } from '../../../src/apps/labels/templates.ts';
import { Gateways } from '../../../src/apps/labels/worker/gateways.ts';
import { saveFailed } from '../../../src/apps/labels/worker/page-store.ts';
import { PermanentError } from '../../../src/engine/errors.ts';
import { until } from '../../support/engine.ts';
import { hashAt, hashesAt, shelf } from './shelf.ts';
import { mac, nowhere, setPrice, template } from './support.ts';

describe('LBL-3: tasks become images', () => {
  it('LBL-3 each change reaches the label, in the order of the commits, with a worker that was there or came later', async () => {
    const scene = await shelf({ labels: 2 });
    await setPrice(scene, 'P0', '2.00');
    await scene.start();
    await scene.done();
    await setPrice(scene, 'P0', '3.00');
    await scene.change((c) => putTemplate(c, 'tag', template('only {{price}}')));
    await scene.done();
    const wanted = [
      ...(await hashesAt('1.00', '2.00', '3.00')),
      await hashAt('3.00', template('only {{price}}')),
    ];
    expect(scene.accepted(1)).toEqual(wanted);
    expect(scene.accepted(2)).toEqual(wanted);
    expect(await scene.page(1)).toMatchObject({ state: 'processing', acceptedHash: wanted.at(-1) });
  });

  it('LBL-3 an image that the gateway has is not pushed again; one that was pushed in between is', async () => {
    const scene = await shelf();
    await scene.start();
    await scene.done();
    // Another name, which the template does not show.
    await scene.change((c) => putStore(c, scene.box, { code: 's1', currency: 'EUR' }));
    await scene.done();
    expect(scene.accepted(1)).toHaveLength(1);
    expect(scene.seen).toMatchObject({ accepted: 1, unchanged: 1 });
    await setPrice(scene, 'P0', '2.00');
    await setPrice(scene, 'P0', '1.00');
    await scene.done();
    expect(scene.accepted(1)).toEqual(await hashesAt('1.00', '2.00', '1.00'));
    // Unless somebody asks for it.
    await scene.change((c) => resync(c, { macs: [mac(1)] }));
    await scene.done();
    expect(scene.accepted(1)).toEqual(await hashesAt('1.00', '2.00', '1.00', '1.00'));
  });

  it('LBL-3 a page that was cleared is blank; a label that was removed gets nothing more', async () => {
    const scene = await shelf({ labels: 2 });
    await scene.change((c) => unassign(c, [{ mac: mac(1) }]));
    await setPrice(scene, 'P0', '2.00');
    await scene.change((c) => removeLabels(c, [mac(2)]));
    await scene.start();
    await scene.done();
    expect(scene.accepted(1)).toEqual([
      await hashAt('1.00'),
      await hashAt('', '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200"/>'),
    ]);
    expect(scene.accepted(2)).toEqual([]);
  });

  it('LBL-3 another gateway for the store is used from the next push on', async () => {
    const scene = await shelf();
    await scene.change((c) =>
      putStore(c, scene.box, { code: 's1', gateway: { ...nowhere, timeoutMs: 500 } }),
    );
    // With time between two attempts: the eighth would be the last.
    await scene.start({ kinds: scene.kinds({ backoff: () => 1000 }) });
    await until('the push is tried in vain', () => scene.seen.retried > 0);
    const gateway = { ...nowhere, url: scene.simulator.url };
    await scene.change((c) => putStore(c, scene.box, { code: 's1', gateway }));
    await scene.done();
    expect(scene.accepted(1)).toEqual(await hashesAt('1.00'));
  });
});

it('LBL-9 a label with ten waiting changes gets the last one', async () => {
  const scene = await shelf({ store: { latestOnly: true } });
  for (let i = 2; i <= 11; i += 1) await setPrice(scene, 'P0', `${i}.00`);
  expect(await scene.tasks(1)).toHaveLength(11);
  await scene.start();
  await scene.done();
  expect(scene.accepted(1)).toEqual(await hashesAt('11.00'));
  const ends = await scene.rows(
    `select status, count(*)::int as n from tallyman.history where kind = 'labels.push' group by 1 order by 1`,
  );
  expect(ends).toEqual([
    { status: 'SUCCEEDED', n: 1 },
    { status: 'SUPERSEDED', n: 10 },
  ]);
});

it('LBL-9 an image that must be pushed again is, though a newer task takes the place of the one that says so', async () => {
  const scene = await shelf({ store: { latestOnly: true } });
  const worker = await scene.start();
  await scene.done();
  await worker.stop();
  await scene.change((c) => resync(c, { macs: [mac(1)] }));
  await scene.change((c) => putStore(c, scene.box, { code: 's1', currency: 'EUR' }));
  await scene.start();
  await scene.done();
  expect(scene.accepted(1)).toEqual(await hashesAt('1.00', '1.00'));
});

describe('LBL-4: what goes wrong', () => {
  it('LBL-4 a label whose pushes always fail: dead letters after its attempts, others never wait, redrive mends it', async () => {
    const scene = await shelf({ labels: 6 });
    const broken = scene.simulator.simulation.labels.register(mac(1));
    broken.settings = { fault: '500' };
    await scene.start({ concurrency: 2 });
    const dead = () => scene.tallyman.deadLetters.list({ kind: 'labels.push' });
    await until('the others show it', () =>
      [2, 3, 4, 5, 6].every((number) => scene.accepted(number).length === 1),
    );
    await until('it is buried', async () => (await dead()).items.length === 1);
    const [letter] = (await dead()).items;
    expect(letter).toMatchObject({ lane: `label:${mac(1)}`, attempts: 8 });
    expect(await scene.page(1)).toMatchObject({ state: 'failed', error: expect.stringContaining('500') });
    // A later image does not wait behind it for ever.
    await setPrice(scene, 'P0', '2.00');
    await until('the next is buried, too', async () => (await dead()).items.length === 2);
    await until('the others show the next', () =>
      [2, 3, 4, 5, 6].every((n) => scene.accepted(n).length === 2),
    );

    broken.settings = {};
    for (const { id } of (await dead()).items.toReversed()) await scene.tallyman.deadLetters.redrive(id);
    await scene.done();
    expect(scene.accepted(1)).toEqual(await hashesAt('1.00', '2.00'));
    expect(await scene.page(1)).toMatchObject({ state: 'processing', error: null });
    expect((await dead()).items).toEqual([]);
  });

  it('LBL-4 a dead letter that goes round again after a later image was shown does not bring the old one back', async () => {
    const scene = await shelf();
    const label = scene.simulator.simulation.labels.register(mac(1));
    label.settings = { fault: '500' };
    await scene.start();
    await scene.done();
    label.settings = {};
    await setPrice(scene, 'P0', '2.00');
    await scene.done();
    const [letter] = (await scene.tallyman.deadLetters.list({})).items;
    await scene.tallyman.deadLetters.redrive(letter?.id ?? '');
    await scene.done();
    expect(scene.accepted(1)).toEqual(await hashesAt('2.00'));
  });

  it('LBL-4 what a gateway refuses for good is FAILED at once, and the label goes on', async () => {
    const scene = await shelf();
    const label = scene.simulator.simulation.labels.register(mac(1));
    label.settings = { fault: '403' };
    await scene.start();
    await scene.done();
    expect(
      await scene.rows(`select status, attempts from tallyman.history where kind = 'labels.push'`),
    ).toEqual([{ status: 'FAILED', attempts: 1 }]);
    expect(await scene.page(1)).toMatchObject({ state: 'failed', error: expect.stringContaining('403') });
    label.settings = {};
    await setPrice(scene, 'P0', '2.00');
    await scene.done();
    expect(scene.accepted(1)).toEqual(await hashesAt('2.00'));
  });

  it('LBL-4 a task that is given up while another process looks at its page leaves the page failed', async () => {
    const scene = await shelf();
    scene.simulator.simulation.labels.register(mac(1)).settings = { fault: '403' };
    const looks = await scene.tallyman.database.dedicated('looks for due pages');
    onTestFinished(() => looks.end());
    await looks.query('begin; select 1 from labels.pages for no key update');
    await scene.start();
    await until('it is refused', () => scene.seen.failed === 1);
    // Long enough that the page was found locked.
    await sleep(200);
    await looks.query('commit');
    await scene.done();
    expect(await scene.page(1)).toMatchObject({ state: 'failed', error: expect.stringContaining('403') });
  });

  it('LBL-4 a worker that gives up after another has finished the task changes nothing', async () => {
    const scene = await shelf();
    const [task] = await scene.tasks(1);
    const late = { label: task?.label ?? '', job: task?.job ?? '', pages: [1] };
    const giveUp = () => scene.change(({ tx }) => saveFailed(tx, late, 'too late'));
    await scene.start();
    await scene.done();
    await giveUp();
    expect(await scene.page(1)).toMatchObject({ state: 'processing', error: null });
  });

  it('LBL-4 a push that may or may not have arrived: the image before it is pushed again when it is wanted again', async () => {
    const scene = await shelf();
    await scene.start();
    await scene.done();
    const label = scene.simulator.simulation.labels.register(mac(1));
    // Accepted, and the answer lost, until the task is buried.
    label.settings = { fault: 'lost' };
    await setPrice(scene, 'P0', '2.00');
    await scene.done();
    label.settings = {};
    await setPrice(scene, 'P0', '1.00');
    await scene.done();
    expect(scene.accepted(1).at(-1)).toBe(await hashAt('1.00'));
    expect(scene.accepted(1).filter((hash) => hash !== scene.accepted(1)[0])).toHaveLength(8);
  });

  it('LBL-4 a task that fails at its second page: the first one is no longer taken to be what it was before', async () => {
    const scene = await shelf({ products: 2, pages: 2, store: { latestOnly: true } });
    await scene.change((c) => assign(c, [{ mac: mac(1), page: 2, sku: 'P0', template: 'tag' }]));
    let refusesPage = 0;
    const gateways = new Gateways(scene.box, {
      connect: (settings, guard) => {
        const gateway = createGateway(settings, guard);
        const { push } = gateway;
        gateway.push = async (image, signal) => {
          if (image.page === refusesPage) throw new PermanentError('NO', 'not this page');
          await push.call(gateway, image, signal);
        };
        return gateway;
      },
    });
    onTestFinished(() => gateways.close());
    await scene.start({ kinds: scene.kinds({ gateways }) });
    const both = (price: string) =>
      scene.change((c) =>
        putProducts(
          c,
          's1',
          ['P0', 'P1'].map((sku) => ({ sku, price })),
        ),
      );
    await scene.done();
    refusesPage = 2;
    await both('2.00');
    await scene.done();
    refusesPage = 0;
    await both('1.00');
    await scene.done();
    const [one, two] = await hashesAt('1.00', '2.00');
    const first = scene.simulator.simulation.labels.get(mac(1))?.images.filter(({ page }) => page === 1);
    expect(first?.map(({ hash }) => hash)).toEqual([one, two, one]);
  });

  it('LBL-4 a gateway that is away takes no slots from other stores, and its tasks lose no attempts by waiting', async () => {
    const scene = await shelf({ labels: 30 });
    const away = { ...nowhere, url: scene.simulator.url, timeoutMs: 300 };
    await scene.change(async (c) => {
      await putStore(c, scene.box, { code: 'away', gateway: away });
      await putProducts(c, 'away', [{ sku: 'P0', name: 'away', price: '1.00' }]);
      const macs = Array.from({ length: 30 }, (_, i) => mac(100 + i));
      await putLabels(
        c,
        macs.map((label) => ({ mac: label, store: 'away', type: 'small' })),
      );
      await assign(
        c,
        macs.map((label) => ({ mac: label, sku: 'P0', template: 'tag' })),
      );
    });
    const { labels } = scene.simulator.simulation;
    const numbers = Array.from({ length: 30 }, (_, i) => 100 + i);
    for (const number of numbers) labels.register(mac(number)).settings = { fault: 'hang' };
    const worker = await scene.start({ concurrency: 3 });
    await until('the other store shows it', () =>
      Array.from({ length: 30 }, (_, i) => scene.accepted(i + 1).length).every((n) => n === 1),
    );
    const waiting = () =>
      scene.rows<{ attempts: number }>(
        `select attempts from tallyman.jobs where last_error ->> 'message' like 'put off: the gateway of store "away"%'`,
      );
    await until('its tasks wait', async () => (await waiting()).length >= 20);
    expect(scene.seen.retried).toBeLessThan(20);
    const attempts = (await waiting()).reduce((sum, job) => sum + job.attempts, 0);
    expect(attempts).toBeLessThanOrEqual(scene.seen.retried);
    // Back, with time enough for a slow machine; a push that was under way must not arrive after that.
    await worker.stop();
    for (const number of numbers) labels.register(mac(number)).settings = {};
    await scene.change((c) =>
      putStore(c, scene.box, { code: 'away', gateway: { ...away, timeoutMs: 60_000 } }),
    );
    await scene.start();
    await scene.done();
    expect(numbers.every((number) => scene.accepted(number).length === 1)).toBe(true);
    expect(await scene.rows('select 1 from tallyman.dead_letters')).toEqual([]);
  });

  it('LBL-4 a lease that is lost in the middle of a push: the late result changes nothing, and the label is pushed to again', async () => {
    const scene = await shelf();
    const release = Promise.withResolvers<void>();
    let pushes = 0;
    const gateways = new Gateways(scene.box, {
      connect: (settings, guard) => {
        const gateway = createGateway(settings, guard);
        const { push } = gateway;
        gateway.push = async (image, signal) => {
          pushes += 1;
          if (pushes === 1) await release.promise;
          await push.call(gateway, image, signal);
        };
        return gateway;
      },
    });
    onTestFinished(() => gateways.close());
    // No renewal comes between the end of the lease and the recovery.
    await scene.start({ kinds: scene.kinds({ gateways }), leaseMs: 600_000, renewMs: 300_000 });
    await until('a push is under way', () => pushes === 1);
    await scene.rows(`update tallyman.claims set expires_at = now() - interval '1 s'`);
    await scene.rows(`select tallyman.recover('{}', '{}', 1000000)`);
    await setPrice(scene, 'P0', '2.00');
    release.resolve();
    await scene.done();
    await until('the label was pushed to again', async () => {
      const forced = await scene.rows('select 1 from labels.pages where resync_job is not null');
      return forced.length === 1;
    });
    await scene.done();
    expect(scene.accepted(1).at(-1)).toBe(await hashAt('2.00'));
    expect(await scene.page(1)).toMatchObject({ acceptedHash: await hashAt('2.00') });
    expect(await scene.rows('select 1 from tallyman.dead_letters')).toEqual([]);
  });
});
