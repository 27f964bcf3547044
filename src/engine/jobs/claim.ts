import type { Database, RawRow } from '../database/database.ts';
import type { AttemptSpan } from './trace.ts';

/** One row of `tallyman.claims` that this worker holds, and how much of it is not yet dealt with. */
export class Claim {
  readonly token: string;
  readonly stream: number;
  readonly takenAt = Date.now();
  /** Free jobs that are not settled, plus lanes that are not let go. At zero the claim can be dropped. */
  left = 0;
  /** Set when a write found the token gone: whatever its jobs still do is discarded. */
  lost = false;
  readonly jobs: ClaimedJob[] = [];

  constructor(token: string, stream: number) {
    this.token = token;
    this.stream = stream;
  }
}

/** A job as `tallyman.packed` writes it. */
export type PackedJob = readonly [pos: string, kind: string, payload: unknown, created: number, rest?: Rest];

/** What is not as it mostly is. */
interface Rest {
  readonly id?: string;
  readonly tenant?: string;
  readonly attempts?: number;
  readonly maxAttempts?: number;
  readonly correlation?: string;
  readonly scheduled?: number;
  readonly trace?: string;
  readonly early?: true;
  readonly superseded?: true;
  readonly keyed?: true;
  readonly large?: true;
}

const nothing: Rest = {};

interface PackedLane {
  readonly pos: string;
  readonly lane: string;
  readonly key: string;
  readonly jobs: readonly PackedJob[];
}

/** A job in this worker's hands. */
export class ClaimedJob {
  readonly claim: Claim;
  readonly lane: LaneRun | undefined;
  readonly pos: string;
  readonly kind: string;
  /** Undefined: too large to be held while the job waits its turn. Fetched when it starts. */
  readonly payload: unknown;
  /** Seconds since 1970. */
  readonly createdAt: number;
  readonly #rest: Rest;
  /** The attempt has an outcome; a second one (a late result after a timeout) is ignored. */
  ended = false;
  /** Ended by `ctx.commit`: nothing is left to settle. */
  committed = false;
  controller: AbortController | undefined;
  startedAt = 0;
  span: AttemptSpan | undefined;

  constructor(
    [pos, kind, payload, created, rest = nothing]: PackedJob,
    claim: Claim,
    lane: LaneRun | undefined,
  ) {
    this.claim = claim;
    this.lane = lane;
    this.pos = pos;
    this.kind = kind;
    this.payload = rest.large ? undefined : payload;
    this.createdAt = created;
    this.#rest = rest;
  }

  get id(): string {
    return this.#rest.id ?? this.pos;
  }
  get tenantId(): string {
    return this.#rest.tenant ?? 'default';
  }
  get attempts(): number {
    return this.#rest.attempts ?? 0;
  }
  get maxAttempts(): number {
    return this.#rest.maxAttempts ?? 5;
  }
  get correlationId(): string {
    return this.#rest.correlation ?? this.id;
  }
  /** Seconds since 1970. */
  get scheduledAt(): number {
    return this.#rest.scheduled ?? this.createdAt;
  }
  get superseded(): boolean {
    return this.#rest.superseded === true;
  }
  /** It has a dedupe key, which must be ended with it. */
  get keyed(): boolean {
    return this.#rest.keyed === true;
  }
  /** What the enqueue left for the handler's span. */
  get trace(): string | undefined {
    return this.#rest.trace;
  }

  /** Its handler was called, and has neither returned nor been given up. */
  get isRunning(): boolean {
    return this.startedAt > 0 && !this.ended;
  }

  abort(reason: Error): void {
    this.controller ??= new AbortController();
    this.controller.abort(reason);
  }
}

/** A lane in this worker's hands: its first jobs, in order. They are run one after another, then it is let go. */
export class LaneRun {
  readonly id: string;
  readonly key: string;
  /** The lane's place in its stream: what the claim holds, and what letting go must match. */
  readonly pos: string;
  readonly claim: Claim;
  readonly jobs: ClaimedJob[] = [];
  next = 0;
  /** Jobs that have an outcome. */
  ended = 0;
  /** Nothing pending below: as far as this worker has come. */
  floor = '0';
  /** A settle with completions of this lane is under way; another must wait, or they could commit out of order. */
  settling = false;
  /** What came meanwhile, and was found waiting. */
  readonly behind: Unconfirmed[] = [];
  /** Completions handed to the settler and not yet confirmed. */
  unconfirmed = 0;
  /** Called when `unconfirmed` reaches zero. */
  readonly waiting: (() => void)[] = [];

  constructor({ pos, lane, key, jobs }: PackedLane, claim: Claim) {
    this.claim = claim;
    this.pos = pos;
    this.id = lane;
    this.key = key;
    for (const packed of jobs) {
      // A head that is not due yet holds back all behind it.
      if (packed[4]?.early) break;
      this.jobs.push(new ClaimedJob(packed, claim, this));
    }
  }
}

export type ClaimedItem = ClaimedJob | LaneRun;

type Completion = { readonly job: ClaimedJob; readonly status: string; readonly letGo?: undefined };
export type LetGo = { readonly letGo: LaneRun; readonly retryMs: number; readonly job?: undefined };
/** What is to be written of a job that has ended, or of a lane. */
export type Unconfirmed = Completion | LetGo;

export interface ClaimRequest {
  readonly worker: string;
  readonly queues: readonly string[];
  readonly wants: readonly number[];
  readonly total: number;
  readonly kinds: readonly string[];
  readonly alone: boolean;
  readonly laneJobs: number;
  readonly late: boolean;
  readonly leaseMs: number;
  readonly staleMs: number;
  readonly drop: readonly string[];
}

export interface ClaimAnswer {
  readonly items: ClaimedItem[];
  readonly claims: Claim[];
  /** Somebody's lease is past: recovery has work. */
  readonly expired: boolean;
  /** Items of a crashed batch wait to be taken alone. */
  readonly aloneWaits: boolean;
}

const claimStatement = {
  name: 'tm_claim',
  text: 'select token, stream, items, expired, alone from tallyman.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)',
};

/** Takes a turn at the streams of some queues. */
export async function claim(database: Database, request: ClaimRequest): Promise<ClaimAnswer> {
  const rows = await database.run(claimStatement, [
    request.worker,
    request.queues,
    request.wants,
    request.total,
    request.kinds,
    request.alone,
    request.laneJobs,
    request.late,
    request.leaseMs,
    request.staleMs,
    request.drop.length > 0 ? request.drop : null,
  ]);
  return read(rows);
}

function read(rows: readonly RawRow[]): ClaimAnswer {
  const items: ClaimedItem[] = [];
  const claims: Claim[] = [];
  let expired = false;
  let aloneWaits = false;
  for (const [token, stream, packed, isExpired, isAlone] of rows) {
    if (!token) {
      expired = isExpired === 't';
      aloneWaits = isAlone === 't';
      continue;
    }
    const claim = new Claim(token, Number(stream));
    claims.push(claim);
    for (const entry of JSON.parse(`[${packed}]`) as (PackedJob | PackedLane)[]) {
      claim.left += 1;
      if ('lane' in entry) {
        const lane = new LaneRun(entry, claim);
        claim.jobs.push(...lane.jobs);
        items.push(lane);
      } else {
        const job = new ClaimedJob(entry, claim, undefined);
        claim.jobs.push(job);
        items.push(job);
      }
    }
  }
  return { items, claims, expired, aloneWaits };
}

/** What `tallyman.enqueue_claimed` has put in and claimed. */
export function claimedAtOnce(token: string, stream: number, packed: readonly PackedJob[]): ClaimAnswer {
  const claim = new Claim(token, stream);
  for (const job of packed) claim.jobs.push(new ClaimedJob(job, claim, undefined));
  claim.left = claim.jobs.length;
  return { items: [...claim.jobs], claims: [claim], expired: false, aloneWaits: false };
}
