import { mqttSettingsOf } from '../apps/iot/mqtt-settings.ts';
import { driftSchedule, exposeLabels, Gateways, labelKinds, StatusLoop } from '../apps/labels/index.ts';
import { type RunningIntake, startIntake } from '../apps/rfid/intake/intake.ts';
import { PlantMetrics } from '../apps/rfid/intake/metrics.ts';
import { warehouseOf } from '../apps/rfid/warehouse.ts';
import { addressPolicy, deliveriesPerEndpoint } from '../apps/webhooks/configured.ts';
import { webhookKinds } from '../apps/webhooks/delivery/kinds.ts';
import { webhookFollower } from '../apps/webhooks/follower.ts';
import type { Config } from '../config/keys.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import type { WorkerOptions } from '../engine/jobs/worker-options.ts';
import type { Logger } from '../engine/logger.ts';
import { purgeEventsKind, purgeEventsSchedule } from '../events/purge.ts';
import { Metrics } from '../observability/metrics.ts';
import type { SecretBox } from '../secrets/box.ts';
import { components } from '../server/components.ts';
import { startServer } from '../server/server.ts';
import type { PartName } from './parts.ts';
import { openRuntime, type Runtime, workerOptions } from './process/open.ts';
import { loadSecretBox } from './process/secrets.ts';

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
  /** See `ReachedDatabase`. */
  readonly lost: Runtime['lost'];
  /** Stops taking requests and claiming work, finishes what runs, up to `jobs.stopTimeoutMs`. */
  stop(): Promise<void>;
}

/** One process with some parts of the product, on one database. */
export async function serve(options: ServeOptions): Promise<Serving> {
  const { config, logger } = options;
  const runtime = await openRuntime(config, {
    logger,
    applicationName: 'tallyman serve',
    embedded: 'either',
    components,
    needs: components,
    ...(options.migrate && { migrate: true }),
  });
  const assembly = new Assembly(options, runtime);
  try {
    const box = await loadSecretBox(config);
    const add: Readonly<Record<PartName, () => Promise<void>>> = {
      worker: () => assembly.addWorker(),
      webhooks: () => assembly.addWebhooks(box),
      intake: () => assembly.addIntake(),
      labels: () => assembly.addLabels(box),
      api: () => assembly.addApi(box),
    };
    // The door last: whoever comes in finds everything running.
    for (const part of ['worker', 'webhooks', 'intake', 'labels', 'api'] as const)
      if (options.parts.includes(part)) await add[part]();
    return assembly;
  } catch (error) {
    await assembly.stop();
    throw error;
  }
}

/** What has been put together so far, and how to take it apart again. */
class Assembly implements Serving {
  readonly lines: string[];
  url: string | undefined;
  readonly lost: Runtime['lost'];
  readonly #options: ServeOptions;
  readonly #runtime: Runtime;
  readonly #metrics: Metrics;
  readonly #stops: (() => Promise<void>)[] = [];
  #intake: RunningIntake | undefined;

  constructor(options: ServeOptions, runtime: Runtime) {
    this.#options = options;
    this.#runtime = runtime;
    this.lost = runtime.lost;
    this.#metrics = new Metrics(runtime.tallyman);
    this.lines = Object.entries(runtime.describe()).map(([name, where]) => line(name, where));
  }

  async addWorker(): Promise<void> {
    const { config, kinds } = this.#options;
    const names = kinds.map((kind) => kind.name).join(', ');
    this.lines.push(line('worker', names || 'no kinds (--kinds names a module)'));
    if (kinds.length > 0) await this.#run({ ...workerOptions(config), kinds });
  }

  async addWebhooks(box: SecretBox): Promise<void> {
    const { config } = this.#options;
    const { database, schedules } = this.#runtime.tallyman;
    const concurrency = config['webhooks.concurrency'];
    const policy = addressPolicy(config);
    const kinds = webhookKinds({ database, box, policy, perEndpoint: deliveriesPerEndpoint(config) });
    await schedules.upsert(purgeEventsSchedule);
    await this.#run({ ...workerOptions(config), concurrency, kinds: [...kinds, purgeEventsKind(database)] });
    const follower = webhookFollower(database);
    this.#stops.push(() => follower.stop());
    follower.start();
    this.lines.push(line('webhooks', `deliveries, ${concurrency} at a time`));
  }

  async addIntake(): Promise<void> {
    const { config, logger } = this.#options;
    const observer = new PlantMetrics(this.#metrics.registry);
    const plates = warehouseOf(config);
    const intake = await startIntake({
      tallyman: this.#runtime.tallyman,
      settings: mqttSettingsOf(config),
      logger,
      observer,
      replayIntervalMs: config['replay.intervalMs'] || undefined,
      upkeep: {
        plates,
        retention: { rawMs: config['retention.rawReadsMs'], processedMs: config['retention.readsMs'] },
      },
    });
    this.#stops.push(() => intake.stop());
    this.#intake = intake;
    this.#metrics.observe(intake.worker);
    observer.observe(intake);
    const { mqtt } = intake.status();
    const broker = mqtt
      ? `MQTT from ${mqtt.broker} as ${mqtt.clientId}`
      : 'no broker (mqtt.brokerHost is not set)';
    this.lines.push(
      line('intake', broker + (plates ? `, plates from ${new URL(config['wms.url'] ?? '').host}` : '')),
    );
  }

  async addLabels(box: SecretBox): Promise<void> {
    const { config } = this.#options;
    const { database, schedules } = this.#runtime.tallyman;
    const concurrency = config['labels.concurrency'];
    const gateways = new Gateways(box);
    this.#stops.push(() => gateways.close());
    const means = { database, gateways, observer: exposeLabels(this.#metrics.registry) };
    await schedules.upsert(driftSchedule(config['labels.driftCron']));
    await this.#run({
      ...workerOptions(config),
      concurrency,
      kinds: labelKinds({ ...means, askAfterMs: config['labels.askAfterMs'] }),
    });
    const status = new StatusLoop({ ...means, intervalMs: config['labels.askIntervalMs'] });
    this.#stops.push(() => status.stop());
    status.start();
    this.lines.push(line('labels', `images, ${concurrency} labels at a time`));
  }

  async addApi(box: SecretBox): Promise<void> {
    const { config, kinds, version, logger } = this.#options;
    const runtime = { ...this.#runtime, brokers: () => this.#brokers() };
    const server = await startServer({
      config,
      runtime,
      metrics: this.#metrics,
      box,
      kinds,
      version,
      logger,
    });
    this.#stops.push(() => server.stop());
    this.url = server.url;
    const keys = server.locked ? 'API keys needed' : 'no API keys yet: open to this machine';
    this.lines.push(line('api', `${server.url}/v1, docs at ${server.url}/v1/docs (${keys})`));
  }

  /** The door first, then the work, then the database under it. */
  async stop(): Promise<void> {
    for (const stop of this.#stops.splice(0).reverse()) await stop();
    await this.#runtime.close();
  }

  async #run(options: WorkerOptions): Promise<void> {
    const worker = this.#runtime.tallyman.worker(options);
    this.#metrics.observe(worker);
    this.#stops.push(() => worker.stop());
    await worker.start();
  }

  #brokers(): ReturnType<Runtime['brokers']> {
    const mqtt = this.#intake?.status().mqtt;
    if (!mqtt) return this.#runtime.brokers();
    const trouble = mqtt.ready ? undefined : (mqtt.reason ?? `MQTT is ${mqtt.state}`);
    return [...this.#runtime.brokers(), { name: 'mqtt', trouble }];
  }
}

const line = (name: string, what: string): string => `${name.padEnd(10)} ${what}`;
