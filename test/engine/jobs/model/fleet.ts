import { expect } from 'vitest';
import {
  after,
  type ClaimedItem,
  ClaimedJob,
  fetchMore,
  type Isolation,
  LaneRun,
  markStarted,
} from '../../../../src/engine/jobs/claim.ts';
import { type Bundle, takeTurn } from '../../../support/engine.ts';
import { type Cursor, checkReach, checkTaken } from './claims.ts';
import { Member } from './member.ts';
import type { Model, ModelClaim, ModelJob, ModelLane } from './model.ts';
import { observe } from './observe.ts';
import { kinds, type People } from './people.ts';
import { expire, fail, settle } from './statements.ts';
import { type FailureSort, laneJobs, queues, type Step, workers } from './steps.ts';

/** Workers that do one statement at a time, and what each statement must answer and change. */
export class Fleet {
  readonly members = Array.from({ length: workers }, (_, i) => new Member(`w${i}`));
  readonly #bundle: Bundle;
  readonly #model: Model;
  readonly #people: People;
  readonly #stale: { readonly worker: string; readonly item: ClaimedItem }[] = [];
  /** In which round of its life a job was claimed. */
  readonly #rounds = new WeakMap<ClaimedJob, number>();
  #births = 0;

  constructor(bundle: Bundle, model: Model, people: People) {
    this.#bundle = bundle;
    this.#model = model;
    this.#people = people;
  }

  /** Answers how many items it got. */
  async claim(step: Omit<Extract<Step, { do: 'claim' }>, 'do'>): Promise<number> {
    const member = this.#member(step.w);
    const asked = queues.filter((_, i) => (step.queues >> i) % 2 === 1);
    await this.#bundle.rows('select tallyman.promote(100)');
    const cursors = await this.#bundle.rows<Cursor>('select id as stream, cursor from tallyman.streams');
    const drop = member.drops.splice(0);
    const answer = await takeTurn(this.#bundle, member.name, {
      ...{ total: step.total, late: step.late, isolated: step.isolated, kinds, laneJobs, drop },
      ...{ queues: asked, wants: asked.map(() => 1_000_000) },
    });
    this.#drop(drop);
    checkTaken(this.#model, answer, step, asked);
    for (const { token } of answer.claims) this.#record(member.name, token, answer.items, step.isolated);
    if (!step.isAnswerLost) member.items.push(...answer.items);
    if (step.late) checkReach(this.#model, await observe(this.#bundle), answer, step, { asked, cursors });
    return answer.items.length;
  }

  #record(worker: string, token: string, all: readonly ClaimedItem[], isolated: Isolation | undefined): void {
    const items = all.filter((item) => item.claim.token === token);
    const claim: ModelClaim = {
      ...{ token, worker, isolated, listed: items.length, started: new Set() },
      laneJobs: isolated ? 1 : laneJobs,
    };
    this.#model.claims.set(token, claim);
    for (const item of items) {
      this.#heldOf(item).heldBy = claim;
      for (const job of item instanceof ClaimedJob ? [item] : item.jobs) this.#handedOut(job);
    }
  }

  async complete(
    w: number,
    nth: number,
    count: number,
    letGo: 'no' | 'more' | 'rest',
    isAnswerLost: boolean,
  ): Promise<void> {
    const { member, item } = this.#pick(w, nth);
    if (!item) return;
    if (item instanceof LaneRun) return this.#completeInLane(member, item, count, letGo, isAnswerLost);
    const isLast = member.items.every((other) => other === item || other.claim !== item.claim);
    const drop = isLast ? [item.claim.token] : [];
    const send = () => settle(this.#bundle, member.name, item, [item], undefined, drop);
    const missing = this.#current(item) ? [] : [item.pos];
    expect(await send()).toMatchObject({ lost: null, missing });
    if (this.#current(item)) this.#model.succeed(this.#jobOf(item));
    this.#drop(drop);
    if (isAnswerLost)
      expect(await send()).toMatchObject(
        isLast ? { lost: drop, missing: null } : { lost: null, missing: [item.pos] },
      );
    member.remove(item, isLast);
  }

  async #completeInLane(
    member: Member,
    run: LaneRun,
    count: number,
    letGo: 'no' | 'more' | 'rest',
    isAnswerLost: boolean,
  ): Promise<void> {
    const jobs = run.jobs.slice(run.next, run.next + count);
    run.next += jobs.length;
    const last = run.jobs[run.next - 1];
    if (last) run.floor = after(last.pos);
    const lane = this.#laneOf(run);
    const positions = jobs.map((job) => job.pos).sort();
    const missing = jobs.filter((job) => !this.#current(job)).map((job) => job.pos);
    // A lane that has to go back (a job was put at its head) or waits for a person needs no gate to be let go.
    const [row] = await this.#bundle.rows<{ rewound: boolean }>(
      'select rewound from tallyman.lanes where id = $1',
      [run.id],
    );
    const needsGate = letGo === 'rest' && row?.rewound === false && lane.blockedBy === undefined;
    const isKept = needsGate && this.#people.isWritten(lane.key);
    const more = letGo === 'no' ? undefined : letGo === 'more';
    const answer = await settle(this.#bundle, member.name, run, jobs, more, []);
    for (const job of jobs) if (this.#current(job)) this.#model.succeed(this.#jobOf(job));
    const [head] = lane.jobs;
    const isLetGo = letGo !== 'no' && !isKept;
    expect({ ...answer, missing: answer.missing?.sort() }).toEqual({
      ...{ lost: null, missing: missing.sort(), let_go: isLetGo ? [run.id] : [] },
      requeued: isLetGo && lane.blockedBy === undefined && (head ? head.isDue : !needsGate),
    });
    if (isLetGo) lane.heldBy = undefined;
    if (isAnswerLost) {
      const again = await settle(this.#bundle, member.name, run, jobs, more, []);
      expect({ ...again, missing: again.missing?.sort() }).toMatchObject({
        ...{ lost: null, missing: positions, let_go: isLetGo ? [run.id] : [] },
      });
    }
    if (isLetGo) member.remove(run, false);
  }

  async fail(w: number, nth: number, sort: FailureSort, isAnswerLost: boolean): Promise<void> {
    const { member, item } = this.#pick(w, nth);
    const job = item instanceof LaneRun ? item.jobs[item.next] : item;
    if (!item || !job) return;
    const cost = sort === 'hand back' ? 0 : 1;
    const send = () => fail(this.#bundle, member.name, item, job, sort);
    const isCurrent = this.#current(job);
    const model = this.#jobOf(job);
    const before = await send();
    if (isCurrent) this.#model.fail(model, cost, sort === 'permanent', sort === 'later' || cost === 0);
    // Of a job that was cancelled, and has gone round again since, it tells what it finds.
    const status = model.ended
      ? unhappy(model)
      : isCurrent || model.attempts > job.attempts
        ? 'QUEUED'
        : undefined;
    const isLane = item instanceof LaneRun;
    const blocked = isLane && this.#laneOf(item).blockedBy === job.id;
    const expected = status === undefined ? [] : [{ id: job.id, status, let_go: isLane, blocked }];
    expect(before).toEqual(expected);
    if (isLane && status) this.#laneOf(item).heldBy = undefined;
    // A free job that was handed back has no place any more, and no attempt tells of it.
    if (isAnswerLost) expect(await send()).toEqual(isCurrent && cost === 0 && !isLane ? [] : expected);
    if (!isLane || status) return member.remove(item, false);
    item.next += 1;
    await this.#completeInLane(member, item, 0, 'rest', false);
  }

  /** The worker writes down that it is about to start the job. */
  async start(w: number, nth: number): Promise<void> {
    const { member, item } = this.#pick(w, nth);
    const job = item instanceof LaneRun ? item.jobs[item.next] : item;
    if (!item || !job) return;
    const lost = await markStarted(this.#bundle.tallyman.database, member.name, [job]);
    expect([...lost]).toEqual([]);
    this.#claimOf(item).started.add(job.id);
  }

  /** More jobs of a lane, once those that were handed out are done. */
  async fetch(w: number, nth: number): Promise<void> {
    const { member, item } = this.#pick(w, nth);
    if (!(item instanceof LaneRun) || item.next < item.jobs.length) return;
    const lane = this.#laneOf(item);
    const seen = await observe(this.#bundle);
    const seqs = new Map(seen.jobs.map(({ id, pos }) => [id, BigInt(pos ?? 0)]));
    const isBehind = (job: ModelJob) => (seqs.get(job.id) ?? 0n) > BigInt(item.lastSeq);
    const isRewound = seen.lanes.some(({ key, rewound }) => key === lane.key && rewound);
    const isClosed =
      isRewound || this.#model.paused.has(lane.queue) || lane.jobs.some((job) => !isBehind(job));
    const behind = isClosed ? [] : lane.jobs.slice(0, laneJobs);
    const early = behind.findIndex((job) => !job.isDue);
    const found = await fetchMore(this.#bundle.tallyman.database, member.name, item, laneJobs);
    const expected = behind.slice(0, early < 0 ? laneJobs : early).map((job) => job.id);
    expect(item.jobs.map((job) => job.id)).toEqual(expected);
    expect(found).toBe(expected.length);
    for (const job of item.jobs) this.#handedOut(job);
    const claim = this.#claimOf(item);
    if (behind.length > 0 && laneJobs * 2 > claim.laneJobs) claim.laneJobs = laneJobs * 4;
  }

  async release(w: number, nth: number): Promise<void> {
    const { member, item } = this.#pick(w, nth);
    if (!item) return;
    const { token } = item.claim;
    await this.#bundle.rows('select tallyman.release($1, $2, $3)', [member.name, [token], [item.pos]]);
    const claim = this.#claimOf(item);
    const held = this.#heldOf(item);
    if (held.heldBy === claim) held.heldBy = undefined;
    claim.listed -= 1;
    if (claim.listed === 0) this.#model.drop(claim);
    member.remove(item, false);
  }

  /** What the worker holds and does not know of, since the answer to a claim was lost. */
  async releaseUnknown(w: number): Promise<void> {
    const member = this.#member(w);
    const known = new Set(member.items.map((item) => item.claim.token));
    await this.#bundle.rows('select tallyman.release_unknown($1, $2)', [member.name, [...known]]);
    for (const claim of this.#model.claimsOf(member.name))
      if (!known.has(claim.token)) this.#model.drop(claim);
  }

  async leave(w: number): Promise<void> {
    const { name } = this.#member(w);
    await this.#bundle.rows('select tallyman.leave($1)', [name]);
    for (const claim of this.#model.claimsOf(name)) this.#model.drop(claim);
    this.#replace(w);
  }

  async crash(w: number, isDelayed: boolean): Promise<void> {
    const { name } = this.#member(w);
    await expire(this.#bundle, name, isDelayed);
    this.#model.crash(name, isDelayed);
    this.#replace(w);
  }

  /** A worker that lost its lease changes nothing, whatever it tries. */
  async writeStale(): Promise<void> {
    const { database } = this.#bundle.tallyman;
    for (const { worker, item } of this.#stale.splice(0)) {
      const { token } = item.claim;
      const jobs = item instanceof ClaimedJob ? [item] : item.jobs;
      const more = item instanceof LaneRun ? false : undefined;
      expect(await settle(this.#bundle, worker, item, jobs, more, [])).toMatchObject({
        lost: [token],
        missing: null,
      });
      const [job] = jobs;
      if (job) {
        expect(await fail(this.#bundle, worker, item, job, 'again')).toMatchObject([
          { status: 'LOST', let_go: false },
        ]);
        expect([...(await markStarted(database, worker, [job]))]).toEqual([token]);
      }
      if (item instanceof LaneRun) expect(await fetchMore(database, worker, item, laneJobs)).toBe(0);
      await this.#bundle.rows('select tallyman.release($1, $2, $3)', [worker, [token], [item.pos]]);
    }
  }

  #pick(w: number, nth: number): { member: Member; item: ClaimedItem | undefined } {
    const member = this.#member(w);
    return { member, item: member.items[nth % Math.max(1, member.items.length)] };
  }

  #member(w: number): Member {
    return this.members[w % workers] as Member;
  }

  #drop(tokens: readonly string[]): void {
    for (const token of tokens) {
      const claim = this.#model.claims.get(token);
      if (claim) this.#model.drop(claim);
    }
  }

  /** Another one starts in its place; what this one still does is stale. */
  #replace(w: number): void {
    const member = this.#member(w);
    for (const item of member.items) this.#stale.push({ worker: member.name, item });
    this.#births += 1;
    this.members[w % workers] = new Member(`w${w}-${this.#births}`);
  }

  #handedOut(job: ClaimedJob): void {
    this.#rounds.set(job, this.#jobOf(job).round);
  }

  /** It has not ended, and is not in another round, since this worker got it. */
  #current(job: ClaimedJob): boolean {
    const model = this.#jobOf(job);
    return !model.ended && model.round === this.#rounds.get(job);
  }

  #jobOf(job: ClaimedJob): ModelJob {
    return this.#model.jobs.get(job.id) as ModelJob;
  }

  #laneOf(run: LaneRun): ModelLane {
    return this.#model.lanes.get(run.key) as ModelLane;
  }

  #heldOf(item: ClaimedItem): ModelJob | ModelLane {
    return item instanceof ClaimedJob ? this.#jobOf(item) : this.#laneOf(item);
  }

  #claimOf(item: ClaimedItem): ModelClaim {
    return this.#model.claims.get(item.claim.token) as ModelClaim;
  }
}

const unhappy = ({ ended }: ModelJob) => (ended === 'DEAD_LETTER' || ended === 'FAILED' ? ended : undefined);
