import type { Config } from '../config/keys.ts';
import { TallymanError } from '../engine/errors.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import type { Worker } from '../engine/jobs/worker.ts';
import type { Logger } from '../engine/logger.ts';
import { Metrics } from '../observability/metrics.ts';
import { components } from '../runtime/components.ts';
import { openRuntime, workerOptions } from '../runtime/open.ts';
import { loadSecretBox } from '../runtime/secrets.ts';
import { addressPolicy, deliveriesPerEndpoint } from '../webhooks/configured.ts';
import { webhookKinds } from '../webhooks/delivery/kinds.ts';
import { purgeSchedule } from '../webhooks/delivery/purge.ts';
import { startServer } from './server.ts';

export const partNames = ['api', 'worker', 'webhooks'] as const;
export type PartName = (typeof partNames)[number];

export interface ServeOptions {
  readonly config: Config;
  readonly parts: readonly PartName[];
  /** What the part `worker` runs, and what the API checks payloads with. */
  readonly kinds: readonly AnyKind[];
  readonly version: string;
  readonly logger: Logger;
  readonly migrate?: boolean;
}

export interface Serving {
  /** What runs where, a line each. */
  readonly lines: readonly string[];
  /** Where the API listens, if it does. */
  readonly url: string | undefined;
  /** Stops taking requests and claiming work, finishes what runs, up to `jobs.stopTimeoutMs`. */
  stop(): Promise<void>;
}

/** The parts named, in the configuration or on the command line; all of them checked. */
export function partsOf(text: string): PartName[] {
  return text.split(',').map((name) => {
    const part = partNames.find((known) => known === name.trim());
    if (!part)
      throw new TallymanError(
        'BAD_OPTION',
        `there is no part "${name.trim()}"; there are ${partNames.join(', ')}`,
      );
    return part;
  });
}

/** One process with some parts of the product, on one database. */
export async function serve(options: ServeOptions): Promise<Serving> {
  const { config, parts, kinds, logger } = options;
  const runtime = await openRuntime(config, {
    logger,
    applicationName: 'tallyman serve',
    embedded: 'either',
    needs: components,
    ...(options.migrate && { migrate: true }),
  });
  const stops: (() => Promise<void>)[] = [];
  const lines = Object.entries(runtime.describe()).map(([name, where]) => `${name.padEnd(10)} ${where}`);
  const say = (part: string, what: string) => lines.push(`${part.padEnd(10)} ${what}`);
  let url: string | undefined;
  const stop = async (): Promise<void> => {
    // The door first, then the work, then the database under it.
    for (const each of stops) await each();
    await runtime.close();
  };
  try {
    const metrics = new Metrics(runtime.tallyman);
    const box = await loadSecretBox(config);
    const workers: Worker[] = [];
    if (parts.includes('worker')) {
      if (kinds.length > 0) workers.push(runtime.tallyman.worker({ ...workerOptions(config), kinds }));
      say(
        'worker',
        kinds.length > 0 ? kinds.map((kind) => kind.name).join(', ') : 'no kinds (--kinds names a module)',
      );
    }
    if (parts.includes('webhooks')) {
      const { database } = runtime.tallyman;
      const concurrency = config['webhooks.concurrency'];
      const deliveries = webhookKinds({
        database,
        box,
        policy: addressPolicy(config),
        perEndpoint: deliveriesPerEndpoint(config),
      });
      await runtime.tallyman.schedules.upsert(purgeSchedule);
      workers.push(runtime.tallyman.worker({ ...workerOptions(config), concurrency, kinds: deliveries }));
      say('webhooks', `deliveries, ${concurrency} at a time`);
    }
    for (const worker of workers) metrics.observe(worker);
    if (parts.includes('api')) {
      const { version } = options;
      const server = await startServer({ config, runtime, metrics, box, kinds, version, logger });
      stops.push(() => server.stop());
      url = server.url;
      const keys = server.locked ? 'API keys needed' : 'no API keys yet: open to this machine';
      say('api', `${server.url}/v1, docs at ${server.url}/v1/docs (${keys})`);
    }
    stops.push(async () => {
      await Promise.all(workers.map((worker) => worker.stop()));
    });
    await Promise.all(workers.map((worker) => worker.start()));
    return { lines, url, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
