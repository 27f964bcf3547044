import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import type { WorkerOptions } from '../../src/engine/jobs/worker-options.ts';
import { Tallyman, type TallymanOptions } from '../../src/engine/tallyman.ts';
import { type ChaosKinds, chaosKinds, witnessTables } from '../chaos/kinds.ts';
import { migratedDatabase } from './postgres.ts';
import type { Random } from './random.ts';

// ── the database and its witnesses ───────────────────────────────────────────────────────────────────────────────

export interface Scene {
  readonly url: string;
  readonly tallyman: Tallyman;
  readonly kinds: ChaosKinds;
  rows<R>(sql: string, values?: unknown[]): Promise<R[]>;
}

/** A database with the engine and the witness tables. `url`: on a server that the test looks after itself. */
export async function scene({
  url: given,
  ...options
}: Partial<TallymanOptions> & { url?: string } = {}): Promise<Scene> {
  const { url, drop } = given ? { url: given, drop: async () => {} } : await migratedDatabase();
  const tallyman = await Tallyman.open({
    databaseUrl: url,
    migrate: true,
    applicationName: 'chaos test',
    ...options,
  });
  onTestFinished(async () => {
    await tallyman.close();
    await drop();
  });
  await tallyman.database.query(witnessTables);
  return {
    url,
    tallyman,
    kinds: chaosKinds(),
    rows: async <R>(sql: string, values?: unknown[]) =>
      (await tallyman.database.query(sql, values)).rows as R[],
  };
}

/** How many numbers a witness has drawn: about how many rows it has, for the price of one. */
export async function drawn({ rows }: Scene, sequence: 'effects_id_seq' | 'runs_id_seq'): Promise<number> {
  const [row] = await rows<{ n: string }>(
    `select case when is_called then last_value else 0 end as n from ${sequence}`,
  );
  return Number(row?.n);
}

/**
 * Waits until no job is left, for as long as they become fewer: a busy machine is slow, a lost job is lost. The error
 * tells what holds the rest. No worker of `fleet` may end meanwhile.
 */
export async function drained(scene: Scene, fleet?: Fleet): Promise<void> {
  let fewest = Number.POSITIVE_INFINITY;
  let deadline = 0;
  for (;;) {
    const [row] = await scene.rows<{ left: number }>('select count(*)::int as left from tallyman.jobs');
    const left = row?.left ?? 0;
    if (left === 0) return;
    expect(fleet?.fallen ?? []).toEqual([]);
    if (left < fewest) {
      fewest = left;
      deadline = Date.now() + stuckAfterMs;
    } else if (Date.now() > deadline)
      throw new Error(
        `${left} jobs are left, as many as ${stuckAfterMs} ms ago:\n${JSON.stringify(await whatIsLeft(scene), null, 1)}`,
      );
    await sleep(50);
  }
}

const stuckAfterMs = 60_000;

const whatIsLeft = async ({ rows }: Scene): Promise<unknown> => ({
  now: await rows('select clock_timestamp()'),
  streams: await rows('select * from tallyman.streams'),
  claims: await rows(
    `select token, worker, stream, claimed_at, expires_at, cardinality(positions) as n, max_pos from tallyman.claims limit 8`,
  ),
  jobs: await rows(`select id, pos, lane, stream, kind, attempts, scheduled_at, last_error ->> 'message' as error
    from tallyman.jobs order by id limit 8`),
  lanes: await rows(`select l.id, l.key, l.stream, l.pos, l.due_at, l.floor, l.blocked_at,
           (select count(*) from tallyman.jobs j where j.lane = l.id) as jobs,
           (select array_agg(c.token) from tallyman.claims c where l.pos = any (c.positions)) as held_by
      from tallyman.lanes l where exists (select 1 from tallyman.jobs j where j.lane = l.id) limit 8`),
});

/** Whatever is there twice, out of order, or ahead of something that had not ended. Empty when all is well. */
export async function amiss(scene: Scene): Promise<object> {
  const found = {
    effects: await effectsAmiss(scene),
    runs: await runsTooEarly(scene),
    completions: await completedOutOfOrder(scene),
  };
  return Object.fromEntries(Object.entries(found).filter(([, rows]) => rows.length > 0));
}

function effectsAmiss({ rows }: Scene): Promise<unknown[]> {
  return rows(`
    select * from (
      select lane, i, seen, behind, worker, count(*) over (partition by job) as times,
             count(*) over (partition by lane, i) as times_in_lane,
             lag(i) over (partition by lane order by i, id) as expected
        from effects) e
     where times > 1 or (lane is not null and (times_in_lane > 1 or seen is distinct from expected or behind <> 0))
     order by lane, i limit 20`);
}

/** In a lane, what stands later is never confirmed earlier. */
function completedOutOfOrder({ rows }: Scene): Promise<unknown[]> {
  return rows(`
    select * from (
      select id, lane, seq, finished_at, worker,
             lag(finished_at) over (partition by lane order by seq) as before
        from tallyman.history where lane is not null) h
     where finished_at < before limit 20`);
}

/** Plain runs in a lane that came before an effect which stands before them. */
function runsTooEarly({ rows }: Scene): Promise<unknown[]> {
  return rows(`
    select r.lane, r.i, r.seen, r.worker from runs r
     where r.lane is not null
       and r.seen is distinct from greatest(r.seen,
             (select max(e.i) from effects e where e.lane = r.lane and e.i < r.i))
     limit 20`);
}

/** Every job finished in one row, none buried, and each by the worker that ran it last. */
export async function expectFinishedOnce({ rows }: Scene, jobs: number): Promise<void> {
  const [count] = await rows<{ rows: string; jobs: string; statuses: string[] }>(
    'select count(*) as rows, count(distinct id) as jobs, array_agg(distinct status) as statuses from tallyman.history',
  );
  expect(count).toEqual({ rows: String(jobs), jobs: String(jobs), statuses: ['SUCCEEDED'] });
  expect(await rows('select id, kind, last_error from tallyman.dead_letters')).toEqual([]);
}

/** Jobs that were completed by a worker other than the last that ran them: under a token that was no longer good. */
export async function completedStale({ rows }: Scene): Promise<unknown[]> {
  return rows(`
    select h.id, h.worker, r.workers from tallyman.history h
      join (select job, array_agg(worker order by id) as workers from runs group by job) r on r.job = h.id
     where h.worker is distinct from r.workers[cardinality(r.workers)] limit 20`);
}

// ── worker processes ─────────────────────────────────────────────────────────────────────────────────────────────

export interface WorkerSettings {
  readonly url: string;
  readonly options: Omit<WorkerOptions, 'kinds'>;
  readonly redis?: string;
  readonly rabbitmq?: string;
  readonly nats?: string;
  /** Another program than worker-process.ts, and what it is told beside the rest. */
  readonly program?: string;
  readonly more?: unknown;
}

export type Question = 'wakeups' | 'stop';
export type Answer =
  | { readonly ready: string }
  | { readonly hints: number; readonly states: readonly string[] };

const program = fileURLToPath(new URL('../chaos/worker-process.ts', import.meta.url));

export class WorkerProcess {
  readonly ready: Promise<string>;
  readonly ended: Promise<unknown>;
  /** What it printed: nothing, unless it died of something. */
  output = '';
  #isReady = false;
  readonly #child: ChildProcess;

  constructor(settings: WorkerSettings) {
    this.#child = fork(settings.program ?? program, [JSON.stringify(settings)], {
      execArgv: [],
      env: { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: join(tmpdir(), 'tallyman-chaos-cache') },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on('data', (chunk: Buffer) => {
        this.output = (this.output + chunk.toString()).slice(-4000);
      });
    this.ended = once(this.#child, 'exit');
    this.ready = this.#answer('ready').then((answer) => {
      this.#isReady = true;
      return answer.ready;
    });
    this.ready.catch(() => {});
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Undefined while it lives. */
  get end(): string | undefined {
    const { exitCode, signalCode } = this.#child;
    return signalCode ?? (exitCode === null ? undefined : `exit ${exitCode}: ${this.output}`);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.ended;
  }

  async ask(question: 'wakeups'): Promise<{ hints: number; states: readonly string[] }> {
    const answer = this.#answer('hints');
    this.#child.send(question);
    return answer;
  }

  #answer<K extends string>(key: K): Promise<Extract<Answer, Record<K, unknown>>> {
    const child = this.#child;
    return new Promise((resolve, reject) => {
      const onMessage = (answer: Answer): void => {
        if (!(key in answer)) return;
        child.off('message', onMessage).off('exit', onExit);
        resolve(answer as Extract<Answer, Record<K, unknown>>);
      };
      const onExit = (): void => reject(new Error(`the worker process ended: ${this.end}`));
      child.on('message', onMessage).once('exit', onExit);
    });
  }
}

/** Some worker processes, all of them gone when the test is. */
export class Fleet {
  readonly #settings: WorkerSettings;
  readonly all: WorkerProcess[] = [];
  kills = 0;

  constructor(settings: WorkerSettings) {
    this.#settings = settings;
    onTestFinished(() => this.killAll());
  }

  async start(size: number): Promise<void> {
    for (let i = 0; i < size; i += 1) this.all.push(new WorkerProcess(this.#settings));
    await Promise.all(this.all.map((worker) => this.#readyOrKilled(worker)));
  }

  /** A job that kills its worker may do so before the worker says that it is ready. */
  async #readyOrKilled(worker: WorkerProcess): Promise<void> {
    await worker.ready.catch((error) => {
      if (worker.end !== 'SIGKILL') throw error;
    });
  }

  /** Another in the place of one that has ended. */
  replace(worker: WorkerProcess): WorkerProcess {
    const next = new WorkerProcess(this.#settings);
    this.all.splice(this.all.indexOf(worker), 1, next);
    return next;
  }

  /** SIGKILL to one that works; another takes its place at once. False: none was ready. */
  async killOne(random: Random): Promise<boolean> {
    const working = this.all.filter((worker) => worker.isReady);
    if (working.length === 0) return false;
    const victim = random.of(working);
    await victim.kill();
    this.kills += 1;
    this.replace(victim);
    return true;
  }

  /**
   * Many kills at random moments, spread over the work: the next one comes when as much is done as its share, or when
   * it has waited long enough.
   */
  async killAlong(
    random: Random,
    kills: number,
    goal: number,
    progress: () => Promise<number>,
  ): Promise<void> {
    while (this.kills < kills) {
      const share = (goal * (this.kills + random.between(0, 1))) / kills;
      const deadline = Date.now() + 600;
      while ((await progress()) < share && Date.now() < deadline) await sleep(20);
      await sleep(random.between(0, 200));
      await this.killOne(random);
    }
  }

  /** How those ended that should still live. */
  get fallen(): string[] {
    return this.all.flatMap((worker) => worker.end ?? []);
  }

  async killAll(): Promise<void> {
    await Promise.all(this.all.map((worker) => worker.kill()));
  }
}
