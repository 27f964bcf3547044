import { onTestFinished } from 'vitest';
import {
  type LabelSimulator,
  type LabelSimulatorOptions,
  startLabelSimulator,
} from '../../../src/apps/labels/gateways/simulator/index.ts';
import { images } from '../../../src/apps/labels/images.ts';
import { type LabelPage, requireLabel } from '../../../src/apps/labels/labels.ts';
import { Gateways } from '../../../src/apps/labels/worker/gateways.ts';
import { type LabelKindsOptions, labelKinds } from '../../../src/apps/labels/worker/kinds.ts';
import type { LabelObserver } from '../../../src/apps/labels/worker/observer.ts';
import type { AnyKind } from '../../../src/engine/jobs/kind.ts';
import type { Worker } from '../../../src/engine/jobs/worker.ts';
import type { WorkerOptions } from '../../../src/engine/jobs/worker-options.ts';
import { until } from '../../support/engine.ts';
import { mac, type Shop, type ShopOptions, shop, template, tenantId } from './support.ts';

/** A shop whose labels hang at a simulated gateway. */
export interface Shelf extends Shop {
  readonly simulator: LabelSimulator;
  readonly gateways: Gateways;
  readonly seen: {
    accepted: number;
    retried: number;
    failed: number;
    unchanged: number;
    drifted: number;
    lags: number[];
  };
  kinds(more?: Partial<LabelKindsOptions>): readonly AnyKind[];
  start(options?: Partial<WorkerOptions>): Promise<Worker>;
  /** Hashes of what the gateway accepted for a label, in order. */
  accepted(number: number): (string | null)[];
  page(number: number, page?: number): Promise<LabelPage | undefined>;
  /** No task is left. */
  done(): Promise<void>;
}

export interface ShelfOptions extends ShopOptions {
  readonly simulator?: LabelSimulatorOptions;
}

export async function shelf(options: ShelfOptions = {}): Promise<Shelf> {
  const simulator = await startLabelSimulator(options.simulator);
  onTestFinished(() => simulator.close());
  const scene = await shop({
    ...options,
    store: {
      ...options.store,
      gateway: {
        kind: 'aims',
        url: simulator.url,
        company: 'c',
        store: 's',
        username: 'u',
        password: 'p',
        timeoutMs: 60_000,
      },
    },
  });
  const { database } = scene.tallyman;
  const gateways = new Gateways(scene.box);
  onTestFinished(() => gateways.close());
  const seen: Shelf['seen'] = { accepted: 0, retried: 0, failed: 0, unchanged: 0, drifted: 0, lags: [] };
  const observer: LabelObserver = {
    pushed: (outcome) => {
      seen[outcome] += 1;
    },
    unchanged: () => {
      seen.unchanged += 1;
    },
    shown: (lag) => seen.lags.push(lag),
    drifted: () => {
      seen.drifted += 1;
    },
  };
  const kinds: Shelf['kinds'] = (more) =>
    labelKinds({ database, gateways, observer, backoff: () => 20, askAfterMs: 0, ...more });
  return {
    ...scene,
    simulator,
    gateways,
    seen,
    kinds,
    start: (more) => scene.work({ kinds: kinds(), ...more }),
    accepted: (number) => simulator.simulation.labels.get(mac(number))?.images.map(({ hash }) => hash) ?? [],
    page: async (number, page = 1) =>
      (await requireLabel(database, tenantId, mac(number))).pages.find((one) => one.page === page),
    done: () =>
      until(
        'no task is left',
        async () =>
          (await scene.rows(`select 1 from tallyman.jobs where kind = 'labels.push' limit 1`)).length === 0,
      ),
  };
}

/** The hash of what a label of the shop shows at this price. */
export const hashAt = async (price: string, svg = template()): Promise<string> =>
  (await images.render('test', { svg, values: { price }, panel: { width: 200, height: 200, palette: 'bw' } }))
    .hash;

export const hashesAt = (...prices: string[]): Promise<string[]> =>
  Promise.all(prices.map((price) => hashAt(price)));
