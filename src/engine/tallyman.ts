import { Checkpoints } from './checkpoints/checkpoints.ts';
import { checkUrl } from './database/address.ts';
import { Database, type DatabaseOptions, type Queryable } from './database/database.ts';
import { type Component, engineComponent, migrate, requireMigrated } from './database/migrate.ts';
import { detectPooler } from './database/pooler.ts';
import { DeadLetters } from './deadletters/dead-letters.ts';
import { closedError } from './errors.ts';
import { checkJobs, type Problem } from './jobs/check.ts';
import { type Enqueued, Enqueuer } from './jobs/enqueue.ts';
import { Jobs } from './jobs/jobs.ts';
import { defaultMaxAttempts, type Kind } from './jobs/kind.ts';
import type { EnqueueOptions } from './jobs/new-job.ts';
import { Queues } from './jobs/queues.ts';
import { runningCorrelation } from './jobs/running.ts';
import { Worker } from './jobs/worker.ts';
import type { WorkerOptions } from './jobs/worker-options.ts';
import { Lanes } from './lanes/lanes.ts';
import { type Exclusive, type ExclusiveOptions, exclusively, type Section } from './locks/exclusive.ts';
import type { LaneLock } from './locks/lane-lock.ts';
import { Log } from './log/log.ts';
import { consoleLogger, type Logger } from './logger.ts';
import { Retention } from './retention/retention.ts';
import { Housekeeper } from './schedules/housekeeper.ts';
import { Schedules } from './schedules/schedules.ts';
import { Notifier } from './wakeups/notifier.ts';
import type { Hint, Wakeup } from './wakeups/wakeup.ts';

export interface TallymanOptions extends Omit<DatabaseOptions, 'url' | 'logger'> {
  readonly databaseUrl: string;
  /** Default: warnings and errors on standard error (`consoleLogger`). pino fits; `silentLogger` says nothing. */
  readonly logger?: Logger;
  /** Bring the database up to date first. Otherwise one that is not is refused. Default false. */
  readonly migrate?: boolean;
  /** Parts with tables of their own, to be migrated with the engine's. Default: none. */
  readonly components?: readonly Component[];
  readonly jobs?: {
    /** Default 1 MiB. */
    readonly maxPayloadBytes?: number;
    /** For kinds that do not say. Default 5. */
    readonly maxAttempts?: number;
  };
  readonly retention?: {
    /** How long finished jobs are kept. 0 writes no history of successes. Default 7 days. */
    readonly keepMs?: number;
  };
  /** Brokers that carry wake-ups beside LISTEN/NOTIFY. */
  readonly wakeups?: readonly Wakeup[];
  /** Who may run a lane, beside the claim in Postgres. Default: the claim alone. */
  readonly laneLock?: LaneLock;
  /** Connections opened at once. A worker that starts needs about four. Default 4. */
  readonly warmConnections?: number;
  /** Run schedules and retention while a worker runs, on one process of the fleet at a time. Default true. */
  readonly housekeeping?: boolean;
}

export type TxOption = { readonly tx?: Queryable };

/**
 * The entry point: enqueue, workers, and everything that operators look at or do.
 *
 * @example
 * const tallyman = await Tallyman.open({ databaseUrl, migrate: true });
 * await tallyman.enqueue(greet, { name: 'Ada' });
 * const worker = tallyman.worker({ kinds: [greet] });
 * await worker.start();
 */
export class Tallyman {
  readonly database: Database;
  readonly jobs: Jobs;
  readonly deadLetters: DeadLetters;
  readonly lanes: Lanes;
  readonly queues: Queues;
  readonly schedules: Schedules;
  readonly checkpoints: Checkpoints;
  readonly log: Log;
  readonly #options: TallymanOptions;
  readonly #enqueuer: Enqueuer;
  readonly #notifier: Notifier;
  readonly #keepMs: number;
  readonly #workers = new Set<Worker>();
  readonly #sessions: boolean;
  #housekeeper: Housekeeper | undefined;
  #housekeeping: NodeJS.Timeout | undefined;
  #closing: Promise<void> | undefined;
  #isClosed = false;

  private constructor(database: Database, options: TallymanOptions, sessions: boolean) {
    this.database = database;
    this.#options = options;
    this.#keepMs = options.retention?.keepMs ?? 7 * 24 * 3_600_000;
    this.#sessions = sessions;
    this.#notifier = new Notifier(database, options.wakeups ?? []);
    // Where SQL enqueues, it notifies as well.
    database.onWork = (hints) => this.#notifier.committed(hints, true);
    const maxPayloadBytes = options.jobs?.maxPayloadBytes ?? 1024 * 1024;
    this.#enqueuer = new Enqueuer(database, this.#notifier, {
      maxPayloadBytes,
      defaultMaxAttempts: options.jobs?.maxAttempts ?? defaultMaxAttempts,
    });
    this.jobs = new Jobs(database, this.#keepMs);
    this.deadLetters = new DeadLetters(database);
    this.lanes = new Lanes(database);
    this.queues = new Queues(database);
    this.schedules = new Schedules(database, { maxPayloadBytes });
    this.checkpoints = new Checkpoints(database);
    this.log = new Log(database);
  }

  static async open(options: TallymanOptions): Promise<Tallyman> {
    checkUrl(options?.databaseUrl);
    const { databaseUrl: url, logger = consoleLogger } = options;
    const database = await Database.connect({ ...options, url, logger });
    try {
      const components = [engineComponent, ...(options.components ?? [])];
      if (options.migrate) await migrate(database, { components });
      else await requireMigrated(database, components);
      const [pooler] = await Promise.all([
        database.pooler ?? detectPooler(database),
        database.warm(options.warmConnections ?? 4),
      ]);
      const sessions = pooler !== 'transaction';
      if (!sessions) {
        database.prepare = false;
        database.logger.warn(
          {},
          'a transaction pooler sits in front of PostgreSQL: there is no LISTEN and no session lock; workers find work by polling',
        );
      }
      const tallyman = new Tallyman(database, options, sessions);
      await tallyman.#notifier.start();
      return tallyman;
    } catch (error) {
      await database.close();
      throw error;
    }
  }

  /**
   * Enqueues one job. Resolves when it is durable; with `tx` it is part of that transaction instead. Inside a
   * handler the job inherits the running job's correlation id.
   */
  enqueue<Output, Input>(
    kind: Kind<Output, Input>,
    payload: NoInfer<Input>,
    { tx, ...options }: EnqueueOptions & TxOption = {},
  ): Promise<Enqueued> {
    if (this.#isClosed) return Promise.reject(closedError());
    return this.#enqueuer.one(kind, payload, inherited(options), tx);
  }

  /** Enqueues many jobs at once: all of them or none. */
  enqueueMany<Output, Input>(
    kind: Kind<Output, Input>,
    items: readonly ({ readonly payload: NoInfer<Input> } & EnqueueOptions)[],
    { tx }: TxOption = {},
  ): Promise<Enqueued[]> {
    if (this.#isClosed) return Promise.reject(closedError());
    return this.#enqueuer.many(kind, runningCorrelation() ? items.map(inherited) : items, tx);
  }

  /**
   * Wakes workers after a commit in which SQL, or a transaction of another library, has enqueued. Such a transaction carries a
   * NOTIFY; brokers hear of it through this. It may be left out: workers poll. Name queues, or a job with its queue:
   * brokers then carry its id.
   */
  hint(work: readonly (string | Hint)[]): void {
    this.#requireOpen();
    this.#notifier.committed(work.map((given) => (typeof given === 'string' ? { queue: given } : given)));
  }

  /** Finds work that can never move. Empty in a healthy database, at any moment; see `Problem`. */
  check(): Promise<readonly Problem[]> {
    return checkJobs(this.database);
  }

  worker(options: WorkerOptions): Worker {
    this.#requireOpen();
    const worker = new Worker(
      {
        database: this.database,
        enqueuer: this.#enqueuer,
        notifier: this.#notifier,
        hasSessions: this.#sessions,
        laneLock: this.#options.laneLock,
        keepMs: this.#keepMs,
        requireOpen: () => this.#requireOpen(),
        onStart: () => this.#keepHouse(),
      },
      options,
    );
    this.#workers.add(worker);
    return worker;
  }

  /**
   * Runs `work` if no other process in the fleet is in a section of this id; never waits for one. Its transactions run on
   * the connection that holds the lock: a process that loses the lock cannot commit.
   */
  exclusively<T>(
    lockId: bigint | number,
    work: (section: Section) => Promise<T>,
    options: ExclusiveOptions = {},
  ): Promise<Exclusive<T>> {
    return exclusively(this.database, lockId, work, options);
  }

  #keepHouse(): void {
    if (this.#housekeeper || this.#options.housekeeping === false) return;
    const retention = new Retention({ keepMs: this.#keepMs });
    const housekeeper = new Housekeeper(this.database, { schedules: this.schedules, retention });
    this.#housekeeper = housekeeper;
    // A worker that starts works off its backlog first.
    this.#housekeeping = setTimeout(() => housekeeper.start(), 1000);
  }

  #requireOpen(): void {
    if (this.#isClosed) throw closedError();
  }

  /**
   * Stops the workers of this process, waits for what is under way, then ends the connections. Handlers may use it until they
   * are done; every other call is refused with CLOSED. May be called again.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#workers].map((worker) => worker.stop()));
    this.#isClosed = true;
    clearTimeout(this.#housekeeping);
    await this.#housekeeper?.stop();
    await this.log.stop();
    await this.#enqueuer.idle();
    await this.#notifier.stop();
    await this.#options.laneLock?.stop();
    await this.database.close();
  }
}

function inherited<O extends EnqueueOptions>(options: O): O {
  const correlationId = runningCorrelation();
  return correlationId ? { correlationId, ...options } : options;
}
