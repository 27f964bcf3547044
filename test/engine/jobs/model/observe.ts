import { expect } from 'vitest';
import type { Bundle } from '../../../support/engine.ts';
import type { Model } from './model.ts';

export interface ObservedJob {
  readonly id: string;
  readonly pos: string | null;
  readonly lane: string | null;
  readonly stream: number;
  readonly attempts: number;
  readonly crashes: number;
  readonly variant: string;
  readonly isDue: boolean;
  readonly holder: string | null;
}

export interface ObservedLane {
  readonly key: string;
  readonly queue: string;
  readonly pos: string | null;
  readonly stream: number;
  readonly priority: number;
  readonly variant: string;
  readonly rewound: boolean;
  readonly holder: string | null;
  readonly blockedBy: string | null;
}

/** What the tables say. */
export interface Observed {
  readonly jobs: readonly ObservedJob[];
  readonly lanes: readonly ObservedLane[];
  readonly claims: readonly { readonly token: string; readonly worker: string }[];
  readonly ended: readonly { readonly id: string; readonly status: string; readonly attempts: number }[];
  readonly problems: readonly unknown[];
}

const holderOf = (item: string) =>
  `(select min(c.token)::text from tallyman.claims c where c.stream = ${item}.stream and ${item}.pos = any (c.positions))`;

const look = `select
  (select coalesce(json_agg(json_build_object(
     'id', j.id::text, 'pos', j.pos::text, 'lane', l.key, 'stream', j.stream, 'attempts', j.attempts,
     'crashes', coalesce(cardinality(j.suspected_of), 0), 'variant', s.variant, 'isDue', j.scheduled_at <= now(),
     'holder', case when j.lane is null then ${holderOf('j')} end) order by j.pos, j.id), '[]')
     from tallyman.jobs j join tallyman.streams s on s.id = j.stream left join tallyman.lanes l on l.id = j.lane) as jobs,
  (select coalesce(json_agg(json_build_object(
     'key', l.key, 'queue', l.queue, 'pos', l.pos::text, 'stream', l.stream, 'priority', s.priority,
     'variant', s.variant, 'rewound', l.rewound, 'holder', ${holderOf('l')}, 'blockedBy', l.blocked_by::text)), '[]')
     from tallyman.lanes l join tallyman.streams s on s.id = l.stream) as lanes,
  (select coalesce(json_agg(json_build_object('token', c.token::text, 'worker', c.worker)), '[]')
     from tallyman.claims c) as claims,
  (select coalesce(json_agg(e), '[]') from (
     select h.id::text, h.status, h.attempts from tallyman.history h
     union all select d.id::text, 'DEAD_LETTER', d.attempts from tallyman.dead_letters d) e) as ended,
  (select coalesce(json_agg(c), '[]') from tallyman.check() c) as problems`;

export async function observe(bundle: Bundle): Promise<Observed> {
  const [observed] = await bundle.rows<Observed>(look);
  return observed as Observed;
}

const byId = (a: { readonly id: string }, b: { readonly id: string }): number => Number(a.id) - Number(b.id);

/** The tables say what the model says: which jobs there are and in which state, who holds what, how each has ended. */
export function compare(model: Model, observed: Observed): void {
  expect(observed.problems).toEqual([]);
  expect(
    observed.jobs
      .map(({ id, lane, attempts, crashes, variant, isDue, holder }) => ({
        ...{ id, lane, attempts, crashes, variant, isDue, holder },
      }))
      .sort(byId),
  ).toEqual(
    model.live
      .map(({ id, lane, attempts, suspectedOf, isolation, isDue, heldBy }) => ({
        ...{ id, lane: lane?.key ?? null, attempts, crashes: suspectedOf.length },
        ...{ variant: isolation ?? '', isDue, holder: heldBy?.token ?? null },
      }))
      .sort(byId),
  );
  expect(
    [...observed.ended].map(({ id, status, attempts }) => ({ id, status, attempts })).sort(byId),
  ).toEqual(
    [...model.jobs.values()]
      .filter((job) => job.ended)
      .map(({ id, ended, attempts }) => ({ id, status: ended, attempts }))
      .sort(byId),
  );
  expect(new Map(observed.claims.map(({ token, worker }) => [token, worker]))).toEqual(
    new Map([...model.claims.values()].map(({ token, worker }) => [token, worker])),
  );
  for (const lane of model.lanes.values()) {
    const seen = observed.lanes.find(({ key }) => key === lane.key);
    const order = observed.jobs.filter((job) => job.lane === lane.key).map((job) => job.id);
    expect({ key: lane.key, order }).toEqual({ key: lane.key, order: lane.jobs.map((job) => job.id) });
    expect({ key: lane.key, holder: seen?.holder ?? null, blockedBy: seen?.blockedBy ?? null }).toEqual({
      ...{ key: lane.key, holder: lane.heldBy?.token ?? null, blockedBy: lane.blockedBy ?? null },
    });
  }
}
