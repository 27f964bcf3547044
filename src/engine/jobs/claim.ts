import type { Database } from '../database/database.ts';
import { type Turn, claim as takeTurn } from '../sql/claim.ts';
import { fetchLane } from '../sql/fetch-lane.ts';
import type { JobColumns, Unusual } from '../sql/job-columns.ts';
import { markStarted as mark } from '../sql/mark-started.ts';
import type { Priority } from './kind.ts';
import type { AttemptSpan } from './trace.ts';

/** One row of `tallyman.claims` that this worker holds, and how much of it is not yet dealt with. */
export class Claim {
  readonly token: string;
  readonly stream: number;
  /** Of its stream. */
  readonly queue: string;
  readonly priority: Priority;
  /** One item of a crashed batch; see `CrashIsolation`. */
  readonly isolated: Isolation | undefined;
  readonly takenAt = Date.now();
  /** Free jobs that are not settled, plus lanes that are not released. At zero the claim can be deleted. */
  left = 0;
  /** Set when a write found the token gone: the results of its jobs are discarded. */
  lost = false;
  /** Those that are not done; for a lane that goes on, done ones leave when it fetches more. */
  jobs: ClaimedJob[] = [];

  constructor(token: string, stream: number, queue: string, priority: Priority, isolated?: Isolation) {
    this.token = token;
    this.stream = stream;
    this.queue = queue;
    this.priority = priority;
    this.isolated = isolated;
  }
}

/** `suspect`: others may run beside it. `alone`: no other isolated item may. */
export type Isolation = 'suspect' | 'alone';

const nothing: Unusual = {};

/** A job that this worker holds. */
export class ClaimedJob {
  readonly claim: Claim;
  readonly lane: LaneRun | undefined;
  readonly pos: string;
  readonly kind: string;
  /** Undefined: too large to be kept in memory while the job waits. Fetched when it starts. */
  readonly payload: unknown;
  /** Seconds since 1970. */
  readonly createdAt: number;
  readonly #unusual: Unusual;
  /** The attempt has an outcome; a second one (a late result after a timeout) is ignored. */
  ended = false;
  /** Ended by `ctx.commit`: nothing is left to settle. */
  committed = false;
  /** Its start was recorded while it ran; see `Runner`. */
  isStartNoted = false;
  /** Its time is up, and its handler has not returned yet. */
  timedOut: Error | undefined;
  controller: AbortController | undefined;
  startedAt = 0;
  span: AttemptSpan | undefined;

  constructor(
    claim: Claim,
    lane: LaneRun | undefined,
    pos: string,
    kind: string,
    payload: unknown,
    createdAt: number,
    unusual = nothing,
  ) {
    this.claim = claim;
    this.lane = lane;
    this.pos = pos;
    this.kind = kind;
    this.payload = unusual.large ? undefined : payload;
    this.createdAt = createdAt;
    this.#unusual = unusual;
  }

  get id(): string {
    return this.#unusual.id ?? this.pos;
  }
  get tenantId(): string {
    return this.#unusual.tenant ?? 'default';
  }
  get attempts(): number {
    return this.#unusual.attempts ?? 0;
  }
  get maxAttempts(): number {
    return this.#unusual.maxAttempts ?? 5;
  }
  get correlationId(): string {
    return this.#unusual.correlation ?? this.id;
  }
  /** Seconds since 1970. */
  get scheduledAt(): number {
    return this.#unusual.scheduled ?? this.createdAt;
  }
  get superseded(): boolean {
    return this.#unusual.superseded === true;
  }
  /** It has a dedupe key, which must be ended with it. */
  get keyed(): boolean {
    return this.#unusual.keyed === true;
  }
  /** Its time has not come. */
  get early(): boolean {
    return this.#unusual.early === true;
  }
  /** What the enqueue left for the handler's span. */
  get trace(): string | undefined {
    return this.#unusual.trace;
  }

  /** A crash must not cost more than this attempt: its start is recorded first (`tallyman.mark_started`). */
  get isStartRecorded(): boolean {
    return this.claim.isolated !== undefined || this.attempts + 1 >= this.maxAttempts;
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

/** Below every seq. Zero would not do: a job that was redriven to the head of a new lane has a negative one. */
const beforeAll = '-9223372036854775808';

/** A lane that this worker holds: its next jobs, in order. They run one after another in one slot. */
export class LaneRun {
  readonly id: string;
  readonly key: string;
  /** The lane's place in its stream: what the claim holds, and what letting go must match. */
  readonly pos: string;
  readonly claim: Claim;
  jobs: ClaimedJob[] = [];
  next = 0;
  /** How much of the prefetch budget it takes. */
  weight = 1;
  /** Jobs run since it got its slot, and when that was: after a while it lets others have the slot. */
  ranInTurn = 0;
  turnStartedAt = 0;
  /** There may be more jobs than were handed out: look before letting go. */
  mayHaveMore = false;
  /** Its head failed and runs again later, or blocks the lane: nothing behind it may run, also while the lane is kept. */
  isHeadWaiting = false;
  /** A look for more jobs that found none is repeated after this time, while a writer keeps the lane from resting. */
  lookAgainMs = 2;
  /** The last seq that was handed out. */
  lastSeq = beforeAll;
  /** Nothing pending below: as far as this worker has come. */
  floor = beforeAll;
  /** Jobs that were run, and of which no settle tells yet. */
  done: ClaimedJob[] = [];
  /** To be let go when they are settled. */
  isLeaving = false;
  /** It waits for the next settle, with what it has done or to be let go. */
  isInLine = false;
  /** A settle with completions of this lane is under way; another must wait, or they could commit out of order. */
  isSettling = false;
  /** Called when nothing of the lane waits for a settle, or is in one. */
  readonly waiting: (() => void)[] = [];

  constructor(claim: Claim, id: string, pos: string, key: string) {
    this.claim = claim;
    this.id = id;
    this.pos = pos;
    this.key = key;
  }

  /** It has work left that this worker does not run now, as far as is known. */
  get hasMore(): boolean {
    return this.isHeadWaiting || this.next < this.jobs.length || this.mayHaveMore;
  }
}

export type ClaimedItem = ClaimedJob | LaneRun;

export interface ClaimRequest {
  readonly worker: string;
  readonly queues: readonly string[];
  readonly wants: readonly number[];
  readonly total: number;
  readonly kinds: readonly string[];
  /** One item of a crashed batch, nothing else. Undefined: ordinary work. */
  readonly isolated?: Isolation | undefined;
  readonly laneJobs: number;
  readonly late: boolean;
  readonly leaseMs: number;
  readonly staleMs: number;
  readonly drop: readonly string[];
}

export interface ClaimAnswer {
  readonly items: ClaimedItem[];
  readonly claims: Claim[];
  /** A lease has expired: recovery has work. */
  readonly expired: boolean;
  /** Items of a crashed batch may be waiting, of either sort. */
  readonly waiting: Readonly<Record<Isolation, boolean>>;
  /** A queue's limit, which holds for all workers, kept something back. */
  readonly limited: boolean;
  /** Another stream has work. */
  readonly more: boolean;
}

/** Takes a turn at a stream of some queues. */
export async function claim(database: Pick<Database, 'run'>, request: ClaimRequest): Promise<ClaimAnswer> {
  const { isolated = null, drop } = request;
  const turn = await takeTurn(database, { ...request, isolated, drop: drop.length > 0 ? drop : null });
  return read(turn, request);
}

function read(turn: Turn, { isolated, laneJobs }: ClaimRequest): ClaimAnswer {
  const items: ClaimedItem[] = [];
  const claims: Claim[] = [];
  for (const { token, stream, queue, priority, jobs, laneOf, lanes } of turn.claims) {
    const claim = new Claim(token, stream, queue, priority as Priority, isolated);
    claims.push(claim);
    if (lanes) readLanes(claim, jobs, laneOf, lanes, items, laneJobs);
    else readFree(claim, jobs, items);
  }
  const { expired, suspects: suspect, alone, limited, more } = turn;
  return { items, claims, expired, waiting: { suspect, alone }, limited, more };
}

/** Hands out more jobs of a lane that this worker holds. Returns how many; it has to let go of the lane if none. */
export async function fetchMore(
  database: Pick<Database, 'run'>,
  worker: string,
  lane: LaneRun,
  limit: number,
): Promise<number> {
  const jobs = await fetchLane(database, {
    worker,
    token: lane.claim.token,
    lane: lane.id,
    lanePos: lane.pos,
    after: lane.lastSeq,
    limit,
    unconfirmed: lane.done.length + limit * 2,
  });
  // All that was handed out before has been run.
  if (lane.lastSeq !== beforeAll) lane.floor = after(lane.lastSeq);
  lane.jobs = [];
  lane.next = 0;
  lane.mayHaveMore = false;
  if (!jobs) return 0;
  lane.claim.jobs = lane.claim.jobs.filter((job) => !job.ended);
  for (let i = 0; i < jobs.positions.length; i += 1) {
    const job = jobAt(lane.claim, lane, jobs, i);
    if (job.early) break;
    lane.jobs.push(job);
    lane.claim.jobs.push(job);
    lane.lastSeq = job.pos;
  }
  lane.mayHaveMore = lane.jobs.length >= limit;
  return lane.jobs.length;
}

/** Records that jobs are about to start. Returns the tokens of claims that are lost. */
export async function markStarted(
  database: Database,
  worker: string,
  jobs: readonly ClaimedJob[],
): Promise<ReadonlySet<string>> {
  const tokens = jobs.map((job) => job.claim.token);
  return new Set(await mark(database, { worker, tokens, ids: jobs.map((job) => job.id) }));
}

function readFree(claim: Claim, jobs: JobColumns, items: ClaimedItem[]): void {
  for (let i = 0; i < jobs.positions.length; i += 1) {
    const job = jobAt(claim, undefined, jobs, i);
    claim.jobs.push(job);
    items.push(job);
  }
  claim.left = jobs.positions.length;
}

/** Lanes, and perhaps free jobs between them. `laneOf` names the lane of each job that is in one. */
function readLanes(
  claim: Claim,
  jobs: JobColumns,
  laneOf: readonly string[],
  lanes: readonly (readonly [id: string, pos: string, key: string])[],
  items: ClaimedItem[],
  laneJobs: number,
): void {
  const runs = new Map(lanes.map(([id, pos, key]) => [id, new LaneRun(claim, id, pos, key)]));
  // A lane without a job (all were cancelled meanwhile) is an item, too: it has to be let go.
  const found: ClaimedItem[] = [...runs.values()];
  let heldBack: LaneRun | undefined;
  jobs.positions.forEach((_, i) => {
    const lane = runs.get(laneOf[i] ?? '');
    const job = jobAt(claim, lane, jobs, i);
    if (lane) {
      // A head that is not due yet holds back all behind it.
      if (job.early) heldBack = lane;
      if (lane === heldBack) return;
      lane.jobs.push(job);
      lane.lastSeq = job.pos;
      lane.mayHaveMore = !claim.isolated && lane.jobs.length >= laneJobs;
    } else found.push(job);
    claim.jobs.push(job);
  });
  claim.left = found.length;
  if (found.length > runs.size) found.sort(byPosition);
  items.push(...found);
}

/** Positions are whole numbers without a sign. */
const byPosition = (a: ClaimedItem, b: ClaimedItem): number =>
  a.pos.length - b.pos.length || (a.pos < b.pos ? -1 : 1);

function jobAt(
  claim: Claim,
  lane: LaneRun | undefined,
  { positions, payloads, kind, created, unusual }: JobColumns,
  i: number,
): ClaimedJob {
  const pos = positions[i] as string;
  // A seq may be the position of another job of the same claim: see `redrive`.
  const odd = unusual?.[lane ? `${lane.id}:${pos}` : pos];
  return new ClaimedJob(claim, lane, pos, kind(i), payloads[i], created(i), odd);
}

/** What `tallyman.enqueue_claimed` has put in and claimed. */
export function claimedAtOnce(claim: Claim, jobs: readonly ClaimedJob[]): ClaimAnswer {
  claim.jobs.push(...jobs);
  claim.left = jobs.length;
  const waiting = { suspect: false, alone: false };
  return { items: [...jobs], claims: [claim], expired: false, waiting, limited: false, more: false };
}

/** The seq behind this one. */
export const after = (pos: string): string => String(BigInt(pos) + 1n);
