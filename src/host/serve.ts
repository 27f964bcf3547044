import type { Config } from '../config/keys.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import type { Worker } from '../engine/jobs/worker.ts';
import type { WorkerOptions } from '../engine/jobs/worker-options.ts';
import type { Logger } from '../engine/logger.ts';
import { Metrics } from '../observability/metrics.ts';
import type { SecretBox } from '../secrets/box.ts';
import { AuditTrail } from '../server/access/audit.ts';
import { startServer } from '../server/server.ts';
import type { App, Health, Host, RunningApp } from './app.ts';
import { catalogueOf } from './catalogue.ts';
import { componentsOf } from './components.ts';
import { openRuntime, type Runtime, workerOptions } from './process/open.ts';
import { loadSecretBox } from './process/secrets.ts';

export interface ServeOptions {
  readonly apps: readonly App[];
  readonly config: Config;
  /** See `partNames`. */
  readonly parts: readonly string[];
  /** The kinds that the part `worker` runs; the API checks payloads with them. */
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
  /** Stops requests and claims, then waits for running work, up to `jobs.stopTimeoutMs`. */
  stop(): Promise<void>;
}

/** One process with some parts of the product, on one database. */
export async function serve(options: ServeOptions): Promise<Serving> {
  const { apps, config, parts, logger } = options;
  const components = componentsOf(apps);
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
    const secrets = await loadSecretBox(config);
    if (parts.includes('worker')) await assembly.addWorker();
    for (const app of apps)
      if (app.start && parts.includes(app.name)) await assembly.addApp(app, app.start, secrets);
    // Last, so that every request finds its parts running.
    if (parts.includes('api')) await assembly.addApi(secrets);
    return assembly;
  } catch (error) {
    await assembly.stop();
    throw error;
  }
}

/** What has been started so far, and how to stop it. */
class Assembly implements Serving {
  readonly lines: string[];
  url: string | undefined;
  readonly lost: Runtime['lost'];
  readonly #options: ServeOptions;
  readonly #runtime: Runtime;
  readonly #metrics: Metrics;
  readonly #trail: AuditTrail;
  readonly #stops: (() => Promise<void>)[] = [];
  readonly #running: RunningApp[] = [];

  constructor(options: ServeOptions, runtime: Runtime) {
    this.#options = options;
    this.#runtime = runtime;
    this.lost = runtime.lost;
    this.#metrics = new Metrics(runtime.tallyman);
    this.#trail = new AuditTrail(runtime.tallyman.database);
    this.lines = Object.entries(runtime.describe()).map(([name, where]) => line(name, where));
  }

  async addWorker(): Promise<void> {
    const { kinds } = this.#options;
    const names = kinds.map((kind) => kind.name).join(', ');
    this.lines.push(line('worker', names || 'no kinds (--kinds names a module)'));
    if (kinds.length > 0) await this.#run({ kinds });
  }

  async addApp(app: App, start: NonNullable<App['start']>, secrets: SecretBox): Promise<void> {
    const { config, logger } = this.#options;
    const { tallyman } = this.#runtime;
    const host: Host = {
      tallyman,
      config,
      secrets,
      catalogue: catalogueOf(this.#options.apps),
      logger,
      run: (options) => this.#run(options),
      observe: (worker) => this.#metrics.observe(worker),
      schedule: async (schedule) => void (await tallyman.schedules.upsert(schedule)),
      audit: (refusal) => this.#trail.note({ ...refusal, outcome: 'refused', correlationId: null }),
      onStop: (stop) => void this.#stops.push(stop),
    };
    const running = await start(host, config, await app.metrics?.(this.#metrics.registry));
    this.#running.push(running);
    this.lines.push(line(app.name, running.summary));
  }

  async addApi(box: SecretBox): Promise<void> {
    const { apps, config, kinds, version, logger } = this.#options;
    const runtime = { ...this.#runtime, brokers: () => this.#brokers() };
    const server = await startServer({
      apps,
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

  /** Stops the API first, then the work, then the database. */
  async stop(): Promise<void> {
    for (const stop of this.#stops.splice(0).reverse()) await stop();
    await this.#trail.flushed();
    await this.#runtime.close();
  }

  async #run(options: Pick<WorkerOptions, 'kinds' | 'concurrency'>): Promise<Worker> {
    const worker = this.#runtime.tallyman.worker({ ...workerOptions(this.#options.config), ...options });
    this.#metrics.observe(worker);
    this.#stops.push(() => worker.stop());
    await worker.start();
    return worker;
  }

  #brokers(): readonly Health[] {
    return [...this.#runtime.brokers(), ...this.#running.flatMap((app) => app.health?.() ?? [])];
  }
}

const line = (name: string, what: string): string => `${name.padEnd(10)} ${what}`;
