import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  assign,
  type Change,
  Gateways,
  labelKinds,
  labelsComponent,
  putLabels,
  putLabelType,
  putProducts,
  putStore,
  putTemplate,
} from '../../../../src/apps/labels/index.ts';
import { askGateways } from '../../../../src/apps/labels/worker/ask.ts';
import { nobody } from '../../../../src/apps/labels/worker/observer.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { Tallyman } from '../../../../src/index.ts';
import { SecretBox } from '../../../../src/secrets/box.ts';
import { CONCURRENCY, gateway, mac, nameOf, panel, price, sku, store, svg, verifyShown } from '../shop.ts';
import type { System } from './system.ts';

const tenantId = 'default';
/** Changes of a price list come in such bites, from so many callers. */
const BITE = 50;
const CALLERS = 4;
/** How often gateways are asked, and how often we look whether all is shown. */
const ROUND_MS = 50;

/**
 * Changes, workers and the question what is shown in one process, as `serve` has them by default; history is not kept,
 * and gateways are asked at once instead of after two seconds.
 */
export const tallyman: System = {
  async open({ url, simulator, labels }) {
    const engine = await Tallyman.open({
      databaseUrl: url,
      migrate: true,
      components: [eventsComponent, labelsComponent],
      poolSize: CONCURRENCY + CALLERS,
      retention: { keepMs: 0 },
    });
    const { database } = engine;
    const box = new SecretBox(randomBytes(32));
    const gateways = new Gateways(box);
    const change = <T>(work: (change: Change) => Promise<T>): Promise<T> =>
      database.transaction((tx) => work({ tx, tenantId }));
    await change(async (within) => {
      await putStore(within, box, { code: 'bench', ...store, gateway: gateway(simulator) });
      await putLabelType(within, { name: 'bench', ...panel });
      await putTemplate(within, 'bench', svg);
    });
    await bites(labels, (part) =>
      change(async (within) => {
        await putProducts(
          within,
          'bench',
          part.map((label) => ({ sku: sku(label), name: nameOf(label), price: price(label, 'before') })),
        );
        await putLabels(
          within,
          part.map((label) => ({ mac: mac(label), store: 'bench', type: 'bench' })),
        );
        await assign(
          within,
          part.map((label) => ({ mac: mac(label), sku: sku(label), template: 'bench' })),
        );
      }),
    );
    const kinds = labelKinds({ database, gateways, askAfterMs: 0 });
    const worker = engine.worker({ kinds, concurrency: CONCURRENCY });
    await worker.start();
    const stopping = new AbortController();
    const asking = askOn({ database, gateways, observer: nobody }, stopping.signal);
    const allShown = async () => {
      while (!(await isShown(engine))) await sleep(ROUND_MS);
    };
    await allShown();
    await database.query('vacuum analyze');
    await database.query('checkpoint');
    return {
      async run() {
        await bites(labels, (part) =>
          change((within) =>
            putProducts(
              within,
              'bench',
              part.map((label) => ({ sku: sku(label), price: price(label, 'after') })),
            ),
          ),
        );
        await allShown();
      },
      verify: () => verifyShown(simulator, labels),
      async close() {
        stopping.abort();
        await asking;
        await worker.stop();
        await gateways.close();
        await engine.close();
      },
    };
  },
};

async function bites(labels: number, work: (part: readonly number[]) => Promise<unknown>): Promise<void> {
  let next = 0;
  const caller = async () => {
    while (next < labels) {
      const first = next;
      next += BITE;
      await work(Array.from({ length: Math.min(BITE, labels - first) }, (_, nth) => first + nth));
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
}

async function askOn(options: Parameters<typeof askGateways>[0], signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await askGateways(options, signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
    await sleep(ROUND_MS);
  }
}

async function isShown({ database }: Tallyman): Promise<boolean> {
  const { rows } = await database.query<{ waits: boolean }>(
    `select exists (select 1 from labels.pages where state <> 'shown' or accepted_job is distinct from wanted_job) as waits`,
  );
  return rows[0]?.waits === false;
}
