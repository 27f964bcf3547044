import { type ClaimedItem, type ClaimedJob, LaneRun } from '../../../../src/engine/jobs/claim.ts';
import type { Bundle } from '../../../support/engine.ts';
import { kinds } from './people.ts';
import type { FailureSort } from './steps.ts';

const laterMs = 3_600_000;

export interface SettleAnswer {
  readonly lost: string[] | null;
  readonly missing: string[] | null;
  readonly let_go: string[] | null;
  readonly requeued: boolean | null;
}

/** Reports that a job failed; of one in a lane, together with its lane. */
export async function fail(
  bundle: Bundle,
  worker: string,
  item: ClaimedItem,
  job: ClaimedJob,
  sort: FailureSort,
): Promise<unknown[]> {
  const failure = {
    ...{ id: job.id, pos: job.pos, attempts: job.attempts, token: job.claim.token, error: { code: 'X' } },
    ...(item instanceof LaneRun && { lane: item.id, lane_pos: item.pos }),
    ...{ permanent: sort === 'permanent', cost: sort === 'hand back' ? 0 : 1 },
    delay_ms: sort === 'later' || sort === 'hand back' ? laterMs : 0,
  };
  return bundle.rows('select id, status, let_go, blocked from tallyman.fail($1, $2, 1e9)', [
    worker,
    JSON.stringify([failure]),
  ]);
}

/** `more` is undefined where the lane is not let go. */
export async function settle(
  bundle: Bundle,
  worker: string,
  item: ClaimedItem,
  jobs: readonly ClaimedJob[],
  more: boolean | undefined,
  drop: readonly string[],
): Promise<SettleAnswer> {
  const lane = item instanceof LaneRun ? item : undefined;
  const leaving = more === undefined ? undefined : lane;
  const positions = jobs.map((job) => job.pos);
  const ran = lane && positions.length > 0;
  const [answer] = await bundle.rows<SettleAnswer>(
    `select lost, missing, coalesce(let_go, '{}') as let_go, coalesce(requeued, false) as requeued
       from tallyman.settle($1, $2, $3, $4, $5, $6, $7, $8, null, 1e9, $9, $10, $11, $12, $13, null)`,
    [
      ...[worker, [item.claim.token], [item.claim.stream], lane ? [] : positions],
      ...(ran ? [[lane.id], [positions[0]], [positions.at(-1)], positions] : [[], [], [], []]),
      ...(leaving ? [[leaving.id], [leaving.pos], [leaving.floor], [more]] : [[], [], [], []]),
      drop,
    ],
  );
  return answer as SettleAnswer;
}

/** A worker dies: its leases are past, and somebody takes back what it held. */
export async function expire(bundle: Bundle, worker: string, isDelayed: boolean): Promise<void> {
  await bundle.rows(`update tallyman.claims set expires_at = now() - interval '1 s' where worker = $1`, [
    worker,
  ]);
  const delays = Array.from({ length: 200 }, () => (isDelayed ? laterMs : 0));
  await bundle.rows(`select tallyman.recover('{}', $1, 1e9)`, [
    JSON.stringify(Object.fromEntries(kinds.map((kind) => [kind, delays]))),
  ]);
}
