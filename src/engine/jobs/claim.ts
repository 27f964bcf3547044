import type { Database, RawRow } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
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

/** A job in this worker's hands. Cells are kept as the text they came in; few of them are ever looked at. */
export class ClaimedJob {
  readonly claim: Claim;
  readonly lane: LaneRun | undefined;
  readonly id: string;
  readonly pos: string;
  readonly kind: string;
  readonly tenantId: string;
  /** Null: too large to be held while the job waits its turn. Fetched when it starts. */
  readonly payload: string | null;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly correlationId: string;
  /** Seconds since 1970, as text. */
  readonly createdAt: string;
  readonly scheduledAt: string;
  readonly superseded: boolean;
  /** What the enqueue left for the handler's span. */
  readonly trace: string | undefined;
  /** The attempt has an outcome; a second one (a late result after a timeout) is ignored. */
  ended = false;
  /** Ended by `ctx.commit`: nothing is left to settle. */
  committed = false;
  controller: AbortController | undefined;
  startedAt = 0;
  span: AttemptSpan | undefined;

  constructor(row: RawRow, claim: Claim, lane: LaneRun | undefined) {
    this.claim = claim;
    this.lane = lane;
    this.id = (row[5] ?? row[2]) as string;
    this.pos = (row[6] ?? row[2]) as string;
    this.kind = row[7] as string;
    this.tenantId = row[8] ?? 'default';
    this.payload = row[9] ?? null;
    this.attempts = row[10] ? Number(row[10]) : 0;
    this.maxAttempts = row[11] ? Number(row[11]) : 5;
    this.correlationId = row[12] ?? this.id;
    this.createdAt = row[13] as string;
    this.scheduledAt = row[14] ?? this.createdAt;
    this.superseded = row[16] === 't';
    this.trace = row[19] ?? undefined;
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
  /** Completions handed to the settler and not yet confirmed. */
  unconfirmed = 0;
  /** Called when `unconfirmed` reaches zero. */
  readonly waiting: (() => void)[] = [];

  constructor(row: RawRow, claim: Claim) {
    this.claim = claim;
    this.pos = row[2] as string;
    this.id = row[3] as string;
    this.key = row[4] as string;
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
}

const claimStatement = {
  name: 'tm_claim',
  text: 'select * from tallyman.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)',
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
  let current: Claim | undefined;
  let lane: LaneRun | undefined;
  let laneOpen = false;
  for (const row of rows) {
    const [token, stream, itemPos, laneId, , jobId] = row;
    if (token) {
      current = new Claim(token, Number(stream));
      continue;
    }
    if (!itemPos) {
      expired = row[17] === 't';
      aloneWaits = row[18] === 't';
      continue;
    }
    if (!current) throw new TallymanError('INTERNAL', 'an item without a claim');
    if (current.left === 0) claims.push(current);
    if (!laneId) {
      const job = new ClaimedJob(row, current, undefined);
      current.jobs.push(job);
      current.left += 1;
      items.push(job);
      continue;
    }
    if (!lane || lane.pos !== itemPos) {
      lane = new LaneRun(row, current);
      laneOpen = true;
      current.left += 1;
      items.push(lane);
    }
    // A head that is not due yet holds back all behind it.
    laneOpen &&= jobId !== null && row[15] === 't';
    if (!laneOpen) continue;
    const job = new ClaimedJob(row, current, lane);
    current.jobs.push(job);
    lane.jobs.push(job);
  }
  return { items, claims, expired, aloneWaits };
}
