import type { Isolation } from '../../../../src/engine/jobs/claim.ts';

export type Ended = 'SUCCEEDED' | 'FAILED' | 'CANCELLED' | 'DEAD_LETTER';

/** A job as it should be. */
export interface ModelJob {
  readonly id: string;
  readonly queue: string;
  readonly priority: number;
  readonly lane: ModelLane | undefined;
  readonly maxAttempts: number;
  ended: Ended | undefined;
  attempts: number;
  /** Crashes that it may have caused and was not charged for. */
  suspectedOf: readonly Crash[];
  isolation: Isolation | undefined;
  isDue: boolean;
  /** Of a free job; in a lane it is the lane that is held. */
  heldBy: ModelClaim | undefined;
  /** Counts its redrives: what was claimed before one is not what runs after it. */
  round: number;
}

/** A crash with several suspects, until one of them is found to have caused it. */
export interface Crash {
  causedBy: ModelJob | undefined;
}

export interface ModelLane {
  readonly key: string;
  readonly queue: string;
  readonly blocks: boolean;
  /** Those that have not ended, in the order in which they must run. */
  jobs: ModelJob[];
  heldBy: ModelClaim | undefined;
  blockedBy: string | undefined;
}

export interface ModelClaim {
  readonly token: string;
  readonly worker: string;
  readonly isolated: Isolation | undefined;
  /** Items that the row lists, done ones included. */
  listed: number;
  laneJobs: number;
  readonly started: Set<string>;
}

/** What jobs, lanes and claims should be, by the rules that the specification states. No SQL, no clock. */
export class Model {
  readonly jobs = new Map<string, ModelJob>();
  readonly lanes = new Map<string, ModelLane>();
  readonly claims = new Map<string, ModelClaim>();
  readonly paused = new Set<string>();

  get live(): ModelJob[] {
    return [...this.jobs.values()].filter((job) => !job.ended);
  }

  lane(key: string, queue: string, blocks: boolean): ModelLane {
    const known = this.lanes.get(key);
    if (known) return known;
    const lane = { key, queue, blocks, jobs: [], heldBy: undefined, blockedBy: undefined };
    this.lanes.set(key, lane);
    return lane;
  }

  add(job: Pick<ModelJob, 'id' | 'queue' | 'priority' | 'lane' | 'maxAttempts' | 'isDue'>): void {
    const added: ModelJob = { ...job, ...fresh, round: 0 };
    this.jobs.set(job.id, added);
    job.lane?.jobs.push(added);
  }

  end(job: ModelJob, ended: Ended): void {
    job.ended = ended;
    job.heldBy = undefined;
    const { lane } = job;
    if (!lane) return;
    lane.jobs = lane.jobs.filter((other) => other !== job);
    if (lane.blocks && (ended === 'FAILED' || ended === 'DEAD_LETTER')) lane.blockedBy = job.id;
  }

  succeed(job: ModelJob): void {
    job.attempts += 1;
    this.end(job, 'SUCCEEDED');
  }

  /** Takes attempts from a job. */
  fail(job: ModelJob, cost: number, isPermanent: boolean, isLater: boolean): void {
    job.attempts += cost;
    if (cost > 0 && isPermanent) return this.end(job, 'FAILED');
    if (cost > 0 && job.attempts >= job.maxAttempts) return this.end(job, 'DEAD_LETTER');
    if (cost > 0) job.suspectedOf = [];
    job.isDue = !isLater;
    job.heldBy = undefined;
  }

  redrive(job: ModelJob, toHead: boolean): void {
    Object.assign(job, fresh, { isDue: true, round: job.round + 1 });
    const { lane } = job;
    if (!lane) return;
    if (!toHead) return void lane.jobs.push(job);
    lane.jobs.unshift(job);
    if (lane.blockedBy === job.id) lane.blockedBy = undefined;
  }

  /** A claim's row is gone, and with it the hold on whatever it listed. */
  drop(claim: ModelClaim): void {
    this.claims.delete(claim.token);
    for (const held of [...this.jobs.values(), ...this.lanes.values()])
      if (held.heldBy === claim) held.heldBy = undefined;
  }

  claimsOf(worker: string): ModelClaim[] {
    return [...this.claims.values()].filter((claim) => claim.worker === worker);
  }

  heldBy(claim: ModelClaim): (ModelJob | ModelLane)[] {
    return [...this.jobs.values(), ...this.lanes.values()].filter((held) => held.heldBy === claim);
  }

  /** A worker died. ENG-17: who had not started is not charged, and a known culprit is the only one that is. */
  crash(worker: string, isLater: boolean): void {
    const items = this.claimsOf(worker).flatMap((claim) =>
      this.heldBy(claim).map((held) => ({ claim, held, head: 'jobs' in held ? held.jobs[0] : held })),
    );
    for (const claim of this.claimsOf(worker)) this.drop(claim);
    const hasStarted = ({ claim, head }: (typeof items)[number]) => !!head && claim.started.has(head.id);
    let culprits = items.filter((item) => item.claim.isolated && hasStarted(item));
    if (culprits.length === 0 && items.length === 1) culprits = items.filter(hasStarted);
    const culprit = culprits.length === 1 ? culprits[0]?.head : undefined;
    if (culprit) {
      culprit.isolation = 'alone';
      const before = culprit.suspectedOf.filter((crash) => !crash.causedBy);
      for (const crash of before) crash.causedBy = culprit;
      this.fail(culprit, before.length + 1, false, isLater);
      return;
    }
    const crash: Crash = { causedBy: undefined };
    for (const item of items)
      if (!item.claim.isolated || hasStarted(item)) this.#suspect(item.held, item.claim, crash);
  }

  #suspect(held: ModelJob | ModelLane, { laneJobs, isolated }: ModelClaim, crash: Crash): void {
    const jobs = 'jobs' in held ? held.jobs.slice(0, Math.max(1, laneJobs)) : [held];
    for (const job of jobs) {
      job.isolation = job.suspectedOf.length === 0 && !isolated ? 'suspect' : 'alone';
      job.suspectedOf = [...job.suspectedOf, crash];
    }
  }
}

const fresh = {
  ended: undefined,
  attempts: 0,
  suspectedOf: [] as readonly Crash[],
  isolation: undefined,
  heldBy: undefined,
};
