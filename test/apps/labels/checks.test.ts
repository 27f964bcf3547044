import { describe, expect, it, onTestFinished } from 'vitest';
import { assign } from '../../../src/apps/labels/assignments.ts';
import { createGateway } from '../../../src/apps/labels/gateways/index.ts';
import { putLabelType } from '../../../src/apps/labels/label-types.ts';
import { putLabels } from '../../../src/apps/labels/labels.ts';
import { putProducts } from '../../../src/apps/labels/products.ts';
import { putStore, type StoreSettings } from '../../../src/apps/labels/stores.ts';
import { putTemplate } from '../../../src/apps/labels/templates.ts';
import { askGateways } from '../../../src/apps/labels/worker/ask.ts';
import { checkDrift } from '../../../src/apps/labels/worker/drift.ts';
import { type Connect, Gateways } from '../../../src/apps/labels/worker/gateways.ts';
import { askAgainMs, type ComparedPage, hasDrifted, judge } from '../../../src/apps/labels/worker/judge.ts';
import { driftSchedule } from '../../../src/apps/labels/worker/kinds.ts';
import { nobody } from '../../../src/apps/labels/worker/observer.ts';
import { StatusLoop } from '../../../src/apps/labels/worker/status-loop.ts';
import { until } from '../../support/engine.ts';
import { hashAt, hashesAt, type Shelf, shelf } from './shelf.ts';
import { mac, nowhere, setPrice, template } from './support.ts';

const never = new AbortController().signal;
const means = (scene: Shelf) => ({
  database: scene.tallyman.database,
  gateways: scene.gateways,
  observer: {
    ...nobody,
    shown: (lag: number) => scene.seen.lags.push(lag),
    drifted: () => scene.seen.drifted++,
  },
});
const ask = (scene: Shelf) => askGateways(means(scene), never);
const drift = (scene: Shelf) => checkDrift(means(scene), never);
const clock = async (scene: Shelf): Promise<string> =>
  (await scene.rows<{ now: string }>('select clock_timestamp()::text as now'))[0]?.now ?? '';
/** So many pages wait for at least two seconds since `before`. Those may have passed: so it is asked an hour before. */
async function expectNotAtOnce(scene: Shelf, before: string, pages: number): Promise<void> {
  const waiting = await scene.rows(
    `select 1 from labels.pages where ask_at >= $1::timestamptz + interval '2 seconds'`,
    [before],
  );
  expect(waiting).toHaveLength(pages);
  await scene.rows(`update labels.pages set ask_at = ask_at + interval '1 hour'`);
  expect(await ask(scene)).toBe(0);
}
const due = (scene: Shelf) => scene.rows('update labels.pages set ask_at = now() where ask_at is not null');

describe('what a report means', () => {
  const page = { page: 1, acceptedHash: 'A', asked: 0 };
  const report = (state: 'shown' | 'processing' | 'timeout' | 'unknown', hash?: string) => ({
    mac: mac(1),
    state,
    ...(hash !== undefined && { hashes: new Map([[1, hash]]) }),
  });

  it('LBL-8 shown is shown, unless the gateway can tell that it is another image', () => {
    expect(judge(page, report('shown'))).toEqual({ state: 'shown' });
    expect(judge(page, report('shown', 'A'))).toEqual({ state: 'shown' });
    expect(judge(page, report('shown', 'B'))).toEqual({ state: 'processing' });
    expect(judge({ ...page, asked: 9 }, report('shown', 'B')).state).toBe('timeout');
    expect(judge(page, report('processing')).state).toBe('processing');
    expect(judge(page, report('timeout')).state).toBe('timeout');
    expect(judge(page, report('unknown')).state).toBe('failed');
    expect(judge(page, undefined).state).toBe('failed');
  });

  it('LBL-8 a page has drifted if it shows another image, or nobody is at work on what is missing', () => {
    const well: ComparedPage = {
      page: 1,
      state: 'shown',
      wantedJob: '5',
      acceptedJob: '5',
      acceptedHash: 'A',
      isPending: false,
    };
    expect(hasDrifted(well, report('shown', 'A'))).toBe(false);
    expect(hasDrifted(well, report('shown'))).toBe(false);
    expect(hasDrifted(well, report('shown', 'B'))).toBe(true);
    expect(hasDrifted(well, report('timeout'))).toBe(true);
    expect(hasDrifted(well, report('unknown'))).toBe(true);
    expect(hasDrifted({ ...well, state: 'processing' }, report('shown', 'B'))).toBe(false);
    expect(hasDrifted({ ...well, state: 'timeout' }, report('shown'))).toBe(true);
    expect(hasDrifted({ ...well, wantedJob: '6' }, report('shown', 'A'))).toBe(true);
    expect(hasDrifted({ ...well, wantedJob: '6', isPending: true }, report('shown', 'B'))).toBe(false);
  });

  it('a gateway is asked ever more rarely', () => {
    expect([0, 1, 2, 7, 100].map(askAgainMs)).toEqual([2000, 4000, 8000, 256_000, 300_000]);
  });
});

describe('LBL-7: from accepted to shown', () => {
  it('LBL-7 the state follows the gateway, and how long it took is told', async () => {
    const scene = await shelf({ labels: 12, simulator: { shownAfter: { minMs: 1e5, maxMs: 1e5 } } });
    await scene.start();
    await scene.done();
    const before = await clock(scene);
    expect(await ask(scene)).toBe(12);
    expect(await scene.page(1)).toMatchObject({ state: 'processing', shownAt: null });
    await expectNotAtOnce(scene, before, 12);
    for (const { images } of scene.simulator.simulation.labels.all())
      images.push(...images.splice(0).map((image) => ({ ...image, shownAt: image.acceptedAt })));
    await due(scene);
    expect(await ask(scene)).toBe(12);
    expect(await scene.page(1)).toMatchObject({ state: 'shown', shownHash: await hashAt('1.00') });
    expect(scene.seen.lags).toHaveLength(12);
    await due(scene);
    expect(await ask(scene)).toBe(0);
  });

  it('LBL-7 a label that times out gets a new task at once, and is then left to the drift check', async () => {
    const scene = await shelf();
    const label = scene.simulator.simulation.labels.register(mac(1));
    label.settings = { timesOut: true };
    await scene.start();
    await scene.done();
    await ask(scene);
    await scene.done();
    expect(scene.accepted(1)).toHaveLength(2);
    await due(scene);
    await ask(scene);
    expect(await scene.page(1)).toMatchObject({
      state: 'timeout',
      error: expect.stringContaining('in time'),
    });
    expect(await scene.tasks(1)).toEqual([]);
    expect(await drift(scene)).toBe(0);
    await scene.rows(`update labels.pages set drift_after = now() - interval '1 s'`);
    label.settings = {};
    expect(await drift(scene)).toBe(1);
    await scene.done();
    await due(scene);
    await ask(scene);
    expect(await scene.page(1)).toMatchObject({ state: 'shown', error: null });
  });

  it('LBL-7 an answer about an image that has been replaced meanwhile says nothing about the new one', async () => {
    const scene = await shelf();
    const worker = await scene.start();
    await scene.done();
    const { report } = scene.gateways.of((await stores(scene))[0] as never);
    const gateway = scene.gateways.of((await stores(scene))[0] as never);
    gateway.report = async (macs, signal) => {
      const said = await report.call(gateway, macs, signal);
      await setPrice(scene, 'P0', '2.00');
      await scene.done();
      return said;
    };
    await ask(scene);
    expect(await scene.page(1)).toMatchObject({ state: 'processing', acceptedHash: await hashAt('2.00') });
    await worker.stop();
  });

  it('LBL-7 a gateway that is away does not keep the others from being asked', async () => {
    const scene = await shelf();
    await scene.start();
    await scene.done();
    await scene.simulator.close();
    const before = await clock(scene);
    expect(await ask(scene)).toBe(1);
    expect(await scene.page(1)).toMatchObject({ state: 'processing' });
    await expectNotAtOnce(scene, before, 1);
  });
});

const stores = (scene: Shelf) =>
  scene.rows(
    `select id as "storeId", tenant_id as "tenantId", code, gateway_sealed as sealed, gateway_version as version from labels.stores`,
  );

it('LBL-7 processes share the asking: each page is asked about by one, and again if that one dies', async () => {
  const scene = await shelf({ labels: 20 });
  await scene.start();
  await scene.done();
  const asked = await Promise.all([ask(scene), ask(scene), ask(scene)]);
  expect(asked.reduce((sum, n) => sum + n, 0)).toBe(20);
  expect(await scene.rows(`select 1 from labels.pages where state = 'shown'`)).toHaveLength(20);
  // One that took pages and died: nothing was told of them, and they are due again.
  await setPrice(scene, 'P0', '2.00');
  await scene.done();
  const gateway = scene.gateways.of((await stores(scene))[0] as never);
  const { report } = gateway;
  gateway.report = () => new Promise(() => {});
  void ask(scene);
  await until(
    'they are taken',
    async () => (await scene.rows('select 1 from labels.pages where ask_at <= now()')).length === 0,
  );
  gateway.report = report;
  expect(await ask(scene)).toBe(0);
  await due(scene);
  expect(await ask(scene)).toBe(20);
});

describe('LBL-8: drift', () => {
  it('LBL-8 what shows another image, is not known to the gateway, or was given up, is pushed again', async () => {
    const scene = await shelf({ labels: 15, products: 15 });
    const { labels, settings } = scene.simulator.simulation;
    labels.register(mac(4)).settings = { fault: '403' };
    await scene.start();
    await scene.done();
    await due(scene);
    await ask(scene);
    expect(await scene.page(4)).toMatchObject({ state: 'failed' });
    labels.register(mac(4)).settings = {};
    const wrong = { type: 'image/png', content: Buffer.from('?'), page: 1, hash: 'another' };
    labels.accept(labels.register(mac(1)), wrong, settings, labels.chance(labels.register(mac(1))));
    const known = labels.all().filter((label) => label.mac !== mac(2));
    labels.clear();
    for (const label of known) Object.assign(labels.register(label.mac), label);

    expect(await drift(scene)).toBe(3);
    await scene.done();
    await due(scene);
    await ask(scene);
    for (const number of [1, 2, 4]) {
      expect(scene.accepted(number).at(-1)).toBe(await hashAt('1.00'));
      expect(await scene.page(number)).toMatchObject({ state: 'shown' });
    }
    expect(scene.accepted(3)).toHaveLength(1);
    expect(scene.seen.drifted).toBe(3);
    expect(await drift(scene)).toBe(0);
  });

  it('LBL-8 what is on its way is not drift', async () => {
    const scene = await shelf();
    expect(await drift(scene)).toBe(0);
    await scene.start();
    await scene.done();
    expect(await drift(scene)).toBe(0);
    expect(scene.accepted(1)).toHaveLength(1);
  });

  it('LBL-8 an image that was accepted and shown while the gateway was asked is not drift', async () => {
    const scene = await shelf();
    await scene.start();
    await scene.done();
    await ask(scene);
    const gateway = scene.gateways.of((await stores(scene))[0] as never);
    const { report } = gateway;
    gateway.report = async (macs, signal) => {
      const said = await report.call(gateway, macs, signal);
      gateway.report = report;
      await setPrice(scene, 'P0', '2.00');
      await scene.done();
      await ask(scene);
      return said;
    };
    expect(await drift(scene)).toBe(0);
    expect(await scene.page(1)).toMatchObject({ state: 'shown', shownHash: await hashAt('2.00') });
    expect(scene.accepted(1)).toEqual(await hashesAt('1.00', '2.00'));
  });

  it('LBL-8 a label that stays away is left alone for longer and longer', async () => {
    const scene = await shelf();
    scene.simulator.simulation.labels.register(mac(1)).settings = { fault: '403' };
    await scene.start();
    const pauses: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      await scene.done();
      expect(await drift(scene)).toBe(1);
      await scene.done();
      expect(await drift(scene)).toBe(0);
      const [row] = await scene.rows<{ minutes: number }>(
        // To ten minutes, whatever time has passed since.
        `select round(extract(epoch from drift_after - now()) / 600)::int * 10 as minutes from labels.pages`,
      );
      pauses.push(row?.minutes ?? 0);
      await scene.rows('update labels.pages set drift_after = now()');
    }
    expect(pauses).toEqual([10, 20, 40]);
  });

  it('LBL-7, LBL-8 both rounds run by themselves', async () => {
    const scene = await shelf();
    await scene.tallyman.schedules.upsert(driftSchedule('* * * * * *'));
    const loop = new StatusLoop({ ...means(scene), intervalMs: 50 });
    onTestFinished(() => loop.stop());
    loop.start();
    await scene.start();
    await until('the label is known to show it', async () => (await scene.page(1))?.state === 'shown');
    scene.simulator.simulation.labels.clear();
    await until('the drift is found', () => scene.accepted(1).length === 1);
    await scene.change((c) => putProducts(c, 's1', [{ sku: 'P0', price: '2.00' }]));
    await until('the change is shown', async () => {
      const page = await scene.page(1);
      return page?.state === 'shown' && page.shownHash === (await hashAt('2.00'));
    });
    expect(scene.accepted(1)).toEqual(await hashesAt('1.00', '2.00'));
  });
});

describe('SEC-5: a gateway that never answers holds up no other', () => {
  /** A store of another tenant, with a label that is on its way. */
  async function furnish(scene: Shelf, tenant: string, number: number, gateway: StoreSettings['gateway']) {
    await scene.change(async (c) => {
      await putStore(c, scene.box, { code: 's1', gateway });
      await putLabelType(c, { name: 'small', width: 200, height: 200, palette: 'bw' });
      await putTemplate(c, 'tag', template('x'));
      await putProducts(c, 's1', [{ sku: 'P0', name: 'P', price: '1.00' }]);
      await putLabels(c, [{ mac: mac(number), store: 's1', type: 'small' }]);
      await assign(c, [{ mac: mac(number), sku: 'P0', template: 'tag' }]);
    }, tenant);
    await scene.rows(
      `update labels.pages set state = 'processing', accepted_job = wanted_job, accepted_hash = 'x', ask_at = now()
        where tenant_id = $1`,
      [tenant],
    );
  }

  /** Gateways of which one never answers; tells what it is asked. */
  function slow(scene: Shelf) {
    const asked: string[] = [];
    const { promise, resolve } = Promise.withResolvers<never[]>();
    const connect: Connect = (settings, guard) => {
      const gateway = createGateway(settings, guard);
      const report = async (macs: readonly string[]) => {
        asked.push(...macs);
        return promise;
      };
      return settings.url === nowhere.url ? Object.assign(gateway, { report }) : gateway;
    };
    const gateways = new Gateways(scene.box, { connect });
    onTestFinished(() => gateways.close());
    onTestFinished(() => resolve([]));
    return { asked, gateways, answer: () => resolve([]) };
  }

  async function pushed(): Promise<Shelf> {
    const scene = await shelf({ labels: 2 });
    const worker = await scene.start();
    await scene.done();
    await worker.stop();
    await furnish(scene, 'acme', 98, nowhere);
    return scene;
  }

  it('SEC-5 asking goes on, and asks the slow one once', async () => {
    const scene = await pushed();
    const { asked, gateways, answer } = slow(scene);
    const loop = new StatusLoop({ ...means(scene), gateways, intervalMs: 20 });
    onTestFinished(() => loop.stop());
    loop.start();
    await until('the slow one is asked', () => asked.length === 1);
    for (let round = 0; round < 3; round += 1) {
      await scene.rows(`update labels.pages set state = 'processing', ask_at = now()`);
      await until('the other shows its image', async () => (await scene.page(1))?.state === 'shown');
    }
    expect(asked).toEqual([mac(98)]);
    answer();
  });

  it('SEC-5 the drift check compares the other stores meanwhile', async () => {
    const scene = await pushed();
    await furnish(scene, 'other', 99, { ...nowhere, url: scene.simulator.url });
    const { asked, gateways, answer } = slow(scene);
    await scene.rows(`update labels.pages set ask_at = null, state = 'timeout'`);
    await scene.rows('truncate tallyman.jobs cascade');
    const round = checkDrift({ ...means(scene), gateways }, never);
    await until('the slow one is asked', () => asked.length === 1);
    await until('the labels of the others are pushed again', () => scene.seen.drifted === 3);
    answer();
    await round;
  });
});
