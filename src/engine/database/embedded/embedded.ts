/**
 * A real PostgreSQL as a child process, for machines without one: `npm start` works on a clean machine.
 *
 *     const postgres = await startEmbedded({ dataDir: '.tallyman/postgres' });
 *     const pool = new pg.Pool({ connectionString: postgres.url });
 *     …
 *     await postgres.stop();
 *
 * It runs until stop(); no exit or signal handlers are installed. A process that ends without stop() leaves
 * the server running, and the next start of the same folder takes over.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Logger, silentLogger } from '../../logger.ts';
import { type Area, openArea, passwordOf } from './area.ts';
import { type Binaries, platformPackage, usableBinaries } from './binaries.ts';
import { clusterExists, ensureCluster } from './cluster.ts';
import { ensureDatabase, urlFor } from './login.ts';
import { claimOwnership, type Ownership } from './ownership.ts';
import { choosePort, portTaken, rememberPort } from './port.ts';
import { launch, type Postmaster, stopOrphan, stopPostmaster } from './postmaster.ts';

export interface EmbeddedOptions {
  /** The folder the server lives in, made when missing. As root it may become a link (see relocation.ts). */
  readonly dataDir: string;
  /** Default: the one of last time if it is free, else any free one. */
  readonly port?: number;
  readonly logger?: Logger;
  /** More settings, as in postgresql.conf. Where it listens cannot be changed. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Root only: where programs and data go that the server's account cannot reach. Default: /var/lib/tallyman. */
  readonly systemDir?: string;
}

export interface EmbeddedPostgres {
  /** With the superuser's password: not for logs. */
  readonly url: string;
  readonly port: number;
  /** Of the server process; another one after restart(). */
  readonly pid: number;
  readonly dataDir: string;
  /** Fast shutdown: ends the sessions, writes everything out, waits. Again is harmless. */
  stop(): Promise<void>;
  /** For fault tests: a signal to the server process, nothing else. */
  kill(signal: NodeJS.Signals): void;
  /** For fault tests: starts again, on the same port, after kill() or stop(); a running server is stopped first. */
  restart(): Promise<void>;
}

export const DEFAULT_SYSTEM_DIR = '/var/lib/tallyman';
/** How often a port that was free a moment ago may turn out to be taken. */
const PORT_TRIES = 5;
const ENDING: ReadonlySet<NodeJS.Signals> = new Set(['SIGINT', 'SIGTERM', 'SIGQUIT', 'SIGABRT', 'SIGKILL']);
/** A killed server is given this long to end before restart() stops it. */
const KILLED_MS = 5_000;

export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const systemDir = options.systemDir ?? DEFAULT_SYSTEM_DIR;
  const found = await platformPackage();
  const area = await openArea(options.dataDir, systemDir);
  const binaries = await usableBinaries(found, area.account, systemDir);
  const server = new EmbeddedServer(area, binaries, options);
  await server.start();
  return server;
}

interface Running {
  readonly postmaster: Postmaster;
  readonly ownership: Ownership;
  readonly url: string;
  readonly port: number;
}

class EmbeddedServer implements EmbeddedPostgres {
  readonly #area: Area;
  readonly #binaries: Binaries;
  readonly #options: EmbeddedOptions;
  readonly #logger: Logger;
  /** The last one; after stop() it still answers for url and port, which stay. */
  #running: Running | undefined;
  #owned = false;
  #expectedToEnd = false;
  /** start, stop and restart wait for one another. */
  #turn: Promise<void> = Promise.resolve();

  constructor(area: Area, binaries: Binaries, options: EmbeddedOptions) {
    this.#area = area;
    this.#binaries = binaries;
    this.#options = options;
    this.#logger = options.logger ?? silentLogger;
  }

  get dataDir(): string {
    return this.#area.asked;
  }

  get url(): string {
    return this.#last().url;
  }

  get port(): number {
    return this.#last().port;
  }

  get pid(): number {
    return this.#last().postmaster.pid;
  }

  #last(): Running {
    if (!this.#running) throw new Error('the embedded server has not been started');
    return this.#running;
  }

  #inTurn(step: () => Promise<void>): Promise<void> {
    const done = this.#turn.then(step);
    this.#turn = done.catch(() => {});
    return done;
  }

  start(): Promise<void> {
    return this.#inTurn(() => this.#start(this.#options.port));
  }

  stop(): Promise<void> {
    return this.#inTurn(() => this.#stop());
  }

  kill(signal: NodeJS.Signals): void {
    const { postmaster } = this.#last();
    if (ENDING.has(signal)) this.#expectedToEnd = true;
    // Once it has ended its number may be somebody else's.
    if (!postmaster.hasEnded()) process.kill(postmaster.pid, signal);
  }

  restart(): Promise<void> {
    return this.#inTurn(async () => {
      const { port, postmaster } = this.#last();
      if (this.#expectedToEnd)
        await Promise.race([postmaster.ended, sleep(KILLED_MS, undefined, { ref: false })]);
      await this.#stop();
      await this.#start(port);
    });
  }

  async #stop(): Promise<void> {
    const { postmaster, ownership } = this.#last();
    this.#expectedToEnd = true;
    await stopPostmaster(postmaster, this.#binaries, this.#logger);
    if (this.#owned) await ownership.release();
    this.#owned = false;
  }

  async #start(port: number | undefined): Promise<void> {
    const area = this.#area;
    const began = performance.now();
    const ownership = await claimOwnership(area);
    try {
      await stopOrphan(area, this.#binaries, this.#logger);
      const password = await passwordOf(area, await clusterExists(area));
      await ensureCluster(area, this.#binaries);
      const running = await this.#launchOnPort(port);
      try {
        await ensureDatabase(area, running.port, password);
        await rememberPort(area, running.port);
      } catch (error) {
        await stopPostmaster(running.postmaster, this.#binaries, this.#logger);
        throw error;
      }
      this.#running = { ...running, ownership, url: urlFor(running.port, password) };
      this.#owned = true;
      this.#expectedToEnd = false;
      this.#watch(running.postmaster);
      const ms = Math.round(performance.now() - began);
      const { pid } = running.postmaster;
      this.#logger.info(
        // `folder` is where the data really is: not in dataDir when that is a link (relocation.ts).
        { pid, port: running.port, dataDir: area.asked, folder: area.folder, ms },
        'embedded PostgreSQL is running',
      );
    } catch (error) {
      await ownership.release();
      throw error;
    }
  }

  async #launchOnPort(asked: number | undefined): Promise<Pick<Running, 'postmaster' | 'port'>> {
    for (let tries = 1; ; tries++) {
      const port = await choosePort(this.#area, asked);
      const launched = await launch({
        area: this.#area,
        binaries: this.#binaries,
        port,
        settings: this.#options.settings ?? {},
        logger: this.#logger,
      });
      if (launched !== 'port taken') return { postmaster: launched, port };
      if (asked !== undefined || tries >= PORT_TRIES) throw portTaken(port);
    }
  }

  #watch(postmaster: Postmaster): void {
    void postmaster.ended.then(() => {
      if (this.#expectedToEnd || this.#running?.postmaster !== postmaster) return;
      this.#logger.error(
        { pid: postmaster.pid, log: this.#area.log },
        'embedded PostgreSQL has ended by itself; its log says why, the next start recovers its data',
      );
    });
  }
}
