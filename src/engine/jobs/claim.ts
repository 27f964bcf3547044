import type { Database } from '../database/database.ts';
import type { RawRow } from '../database/hot-query.ts';
import type { Priority } from './kind.ts';
import type { AttemptSpan } from './trace.ts';

/** One row of `tallyman.claims` that this worker holds, and how much of it is not yet dealt with. */
export class Claim {
  readonly token: string;
  readonly stream: number;
  /** Of its stream. */
  readonly queue: string;
  readonly priority: Priority;
  readonly takenAt = Date.now();
  /** Free jobs that are not settled, plus lanes that are not let go. At zero the claim can be dropped. */
  left = 0;
  /** Set when a write found the token gone: whatever its jobs still do is discarded. */
  lost = false;
  readonly jobs: ClaimedJob[] = [];

  constructor(token: string, stream: number, queue: string, priority: Priority) {
    this.token = token;
    this.stream = stream;
    this.queue = queue;
    this.priority = priority;
  }
}

/** What is not as it mostly is; see `tallyman.unusual`. */
interface Unusual {
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

const nothing: Unusual = {};

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
  readonly #unusual: Unusual;
  /** The attempt has an outcome; a second one (a late result after a timeout) is ignored. */
  ended = false;
  /** Ended by `ctx.commit`: nothing is left to settle. */
  committed = false;
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
  /** Jobs that were run, and of which no settle tells yet. */
  done: ClaimedJob[] = [];
  /** To be let go when they are settled. */
  isLeaving = false;
  /** Waits for the next settle, with what it has done or to be let go. */
  isInLine = false;
  /** A settle with completions of this lane is under way; another must wait, or they could commit out of order. */
  isSettling = false;
  /** A writer had the lane locked: try again after so long to let it go. */
  letGoAgainMs = 10;
  /** Called when nothing of the lane waits for a settle, or is in one. */
  readonly waiting: (() => void)[] = [];

  constructor(claim: Claim, id: string, pos: string, key: string) {
    this.claim = claim;
    this.id = id;
    this.pos = pos;
    this.key = key;
  }
}

export type ClaimedItem = ClaimedJob | LaneRun;

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
  /** A queue's limit, which holds for all workers, kept something back. */
  readonly limited: boolean;
}

const claimStatement = {
  name: 'tm_claim',
  text: 'select token, stream, queue, priority, positions, kinds, payloads, created, unusual, lanes, lane_items, expired, alone, limited from tallyman.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)',
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
  let [expired, aloneWaits, limited] = [false, false, false];
  for (const row of rows) {
    const [token, stream, queue, priority, ...rest] = row;
    const [positions, kinds, payloads, created, unusual, lanes, laneItems, ...seeTo] = rest;
    if (!token) {
      [expired, aloneWaits, limited] = seeTo.map((cell) => cell === 't') as [boolean, boolean, boolean];
      continue;
    }
    const claim = new Claim(token, Number(stream), queue ?? '', Number(priority) as Priority);
    claims.push(claim);
    const jobs = columns(positions, kinds, payloads, created, unusual);
    if (laneItems) readLanes(claim, jobs, idsOf(lanes), JSON.parse(laneItems), items);
    else readFree(claim, jobs, items);
  }
  return { items, claims, expired, aloneWaits, limited };
}

/** A claim's jobs as they come: column by column. */
interface Columns {
  readonly positions: readonly string[];
  readonly payloads: readonly unknown[];
  readonly kind: (i: number) => string;
  readonly created: (i: number) => number;
  readonly unusual: Readonly<Record<string, Unusual>> | undefined;
}

type Cell = string | null | undefined;

function columns(positions: Cell, kinds: Cell, payloads: Cell, created: Cell, unusual: Cell): Columns {
  return {
    positions: idsOf(positions),
    payloads: JSON.parse(`[${payloads ?? ''}]`),
    kind: oneOrMany<string>(kinds),
    created: oneOrMany<number>(created),
    unusual: unusual ? JSON.parse(unusual) : undefined,
  };
}

/** A value for all jobs, or one for each. */
function oneOrMany<T>(cell: Cell): (i: number) => T {
  const value = JSON.parse(cell ?? 'null');
  return Array.isArray(value) ? (i) => value[i] : () => value;
}

function readFree(claim: Claim, jobs: Columns, items: ClaimedItem[]): void {
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
  jobs: Columns,
  laneOf: readonly string[],
  lanes: readonly (readonly [id: string, pos: string, key: string])[],
  items: ClaimedItem[],
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
  { positions, payloads, kind, created, unusual }: Columns,
  i: number,
): ClaimedJob {
  const pos = positions[i] as string;
  return new ClaimedJob(claim, lane, pos, kind(i), payloads[i], created(i), unusual?.[pos]);
}

/** What `tallyman.enqueue_claimed` has put in and claimed. */
export function claimedAtOnce(claim: Claim, jobs: readonly ClaimedJob[]): ClaimAnswer {
  claim.jobs.push(...jobs);
  claim.left = jobs.length;
  return { items: [...jobs], claims: [claim], expired: false, aloneWaits: false, limited: false };
}

/** An int8[] as Postgres writes it: `{1,2}`. */
export function idsOf(cell: string | null | undefined): string[] {
  return cell && cell.length > 2 ? cell.slice(1, -1).split(',') : [];
}
