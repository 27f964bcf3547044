/** What must be true during and after a soak, as queries on what handlers and the driver wrote down. */
import type { Queryable } from '../../src/engine/index.ts';

export interface Violation {
  readonly rule: string;
  readonly count: number;
  readonly examples: readonly unknown[];
}

/** `tallyman.check()`, if there is one: a problem that it reports twice in a row is a violation. */
export class Checker {
  readonly violations = new Map<string, Violation>();
  #last = new Set<string>();
  #exists: boolean | undefined;
  readonly #database: Queryable;

  constructor(database: Queryable) {
    this.#database = database;
  }

  get exists(): boolean {
    return this.#exists === true;
  }

  async look(): Promise<void> {
    if (this.#exists === undefined) {
      const { rows } = await this.#database.query<{ there: boolean }>(
        `select to_regproc('tallyman.check') is not null as there`,
      );
      this.#exists = rows[0]?.there === true;
    }
    if (!this.#exists) return;
    const { rows } = await this.#database.query<{ problem: string; detail: string }>(
      'select problem, detail from tallyman.check()',
    );
    const found = new Set(rows.map(({ problem, detail }) => `${problem}: ${detail}`));
    for (const problem of found)
      if (this.#last.has(problem))
        this.violations.set(problem, {
          rule: 'tallyman.check() twice in a row',
          count: 1,
          examples: [problem],
        });
    this.#last = found;
  }
}

/** Each answers the rows that break a rule. */
const rules: Record<string, string> = {
  'every enqueued job has run or was cancelled': `
    select e.job, h.status from soak.enqueued e left join tallyman.history h on h.id = e.job
     where (h.status = 'SUCCEEDED' and exists (select 1 from soak.starts s where s.job = e.job)
            or h.status = 'CANCELLED' and exists (select 1 from soak.cancelled c where c.job = e.job)) is not true`,
  'no job ends twice': `
    select id, count(*) as times from tallyman.history group by id having count(*) > 1`,
  'a cancelled job ends as cancelled': `
    select c.job, h.status from soak.cancelled c left join tallyman.history h on h.id = c.job
     where h.status is distinct from 'CANCELLED'`,
  'no dead letters': `select id, kind, last_error ->> 'message' as error from tallyman.dead_letters`,
  'an effect happens once if the job succeeded, and not at all otherwise': `
    select e.job, h.status, count(f.id) as times from soak.enqueued e
      left join tallyman.history h on h.id = e.job left join soak.effects f on f.job = e.job
     where e.effect group by e.job, h.status
    having count(f.id) <> case when h.status = 'SUCCEEDED' then 1 else 0 end`,
  'effects of a lane are in order': `
    select * from (select job, queue, lane, seq, lag(seq) over (partition by queue, lane order by id) as before
                     from soak.effects where lane is not null) f
     where seq < before`,
  // A crash repeats runs, in order: the last run of each job comes after the last run of the one before it.
  'runs of a lane are in order': `
    select * from (select job, queue, lane, seq, last, lag(last) over (partition by queue, lane order by seq) as before
                     from (select job, queue, lane, seq, max(id) as last from soak.starts where lane is not null
                            group by 1, 2, 3, 4) l) o
     where last < before`,
};

export async function brokenRules(database: Queryable): Promise<Violation[]> {
  const found: Violation[] = [];
  // Made now: while the work runs they would only slow it down.
  await database.query(
    'create index on soak.starts (job); create index on soak.effects (job); analyze soak.starts, soak.effects, tallyman.history',
  );
  for (const [rule, sql] of Object.entries(rules)) {
    const { rows } = await database.query(sql);
    if (rows.length > 0) found.push({ rule, count: rows.length, examples: rows.slice(0, 5) });
  }
  return found;
}

export interface Wait {
  readonly job: string;
  readonly queue: string;
  readonly lane: string | null;
  readonly attempt: number;
  readonly seconds: number;
}

/**
 * The runs that were kept waiting for so many seconds when nothing stood in their way, longest first. A run can begin once it is due, the
 * process that ran it before is dead, and all before it in its lane have ended; while its queue is paused no time passes.
 */
export async function longestWaits(database: Queryable, atLeast: number): Promise<Wait[]> {
  const { rows } = await database.query<Wait>(
    `with ended as (
      -- A lane's name is in one queue only.
      select id as job, max(finished_at) over (partition by lane order by seq
                                                rows between unbounded preceding and 1 preceding) as lane_free
        from tallyman.history where lane is not null),
    runs as (
      select s.job, s.queue, s.lane, s.attempt, s.at,
             greatest(s.due, e.lane_free, k.at) as free_at
        from (select *, lag(process) over (partition by job order by id) as process_before from soak.starts) s
        left join ended e on e.job = s.job
        left join soak.kills k on k.process = s.process_before and k.at <= s.at),
    late as (select * from runs where at - free_at > interval '0.2 s')
    select * from (
      select l.job::text, l.queue, l.lane, l.attempt,
             extract(epoch from l.at - l.free_at)::float8 - coalesce((
               select sum(extract(epoch from least(p.until, l.at) - greatest(p.since, l.free_at)))
                 from soak.pauses p
                where p.queue = l.queue and p.since < l.at and coalesce(p.until, l.at) > l.free_at), 0)::float8 as seconds
        from late l) w
     where seconds >= $1 order by seconds desc`,
    [atLeast],
  );
  return rows;
}
