import { expect } from 'vitest';
import { type ClaimAnswer, ClaimedJob, type Isolation } from '../../../../src/engine/jobs/claim.ts';
import type { Model } from './model.ts';
import type { Observed } from './observe.ts';
import { laneJobs } from './steps.ts';

interface Request {
  readonly total: number;
  readonly isolated: Isolation | undefined;
}

/** Nothing was taken that somebody holds, that is not due, or that this claim did not ask for; lanes from their head on. */
export function checkTaken(
  model: Model,
  { items }: ClaimAnswer,
  { total, isolated }: Request,
  asked: readonly string[],
): void {
  expect(items.length).toBeLessThanOrEqual(isolated ? 1 : total);
  for (const item of items) {
    const held = item instanceof ClaimedJob ? model.jobs.get(item.id) : model.lanes.get(item.key);
    expect(held).toMatchObject({ heldBy: undefined });
    expect(asked).toContain(held?.queue);
    expect([...model.paused]).not.toContain(held?.queue);
    if (item instanceof ClaimedJob) {
      expect(held).toMatchObject({ ended: undefined, isDue: true, isolation: isolated, lane: undefined });
    } else {
      const lane = model.lanes.get(item.key);
      expect(lane).toMatchObject({ blockedBy: undefined });
      const first = lane?.jobs.slice(0, isolated ? 1 : laneJobs) ?? [];
      const early = first.findIndex((job) => !job.isDue);
      const due = early < 0 ? first : first.slice(0, early);
      expect(item.jobs.map((job) => job.id)).toEqual(due.map((job) => job.id));
    }
  }
}

interface Left {
  readonly name: string;
  readonly stream: number;
  readonly priority: number;
  readonly pos: bigint;
  readonly variant: string;
}

/** What could be claimed by this worker and was not. */
function leftBehind(model: Model, observed: Observed, asked: readonly string[]): Left[] {
  const isOpen = (queue: string) => asked.includes(queue) && !model.paused.has(queue);
  const left: Left[] = [];
  for (const { id, pos, stream, variant } of observed.jobs) {
    const job = model.jobs.get(id);
    if (!job || job.lane || job.heldBy || !job.isDue || !isOpen(job.queue)) continue;
    expect({ job: id, pos }).toEqual({ job: id, pos: expect.any(String) });
    left.push({ name: `job ${id}`, stream, priority: job.priority, pos: BigInt(pos ?? 0), variant });
  }
  for (const { key, pos, stream, priority, variant } of observed.lanes) {
    const lane = model.lanes.get(key);
    if (!lane || lane.heldBy || lane.blockedBy || !lane.jobs[0]?.isDue || !isOpen(lane.queue)) continue;
    expect({ lane: key, pos }).toEqual({ lane: key, pos: expect.any(String) });
    left.push({ name: key, stream, priority, pos: BigInt(pos ?? 0), variant });
  }
  return left;
}

/** Where a stream's next claim begins. */
export interface Cursor {
  readonly stream: number;
  readonly cursor: string;
}

/**
 * ENG-16: a claim that starts at the floor takes the first of the most urgent stream that has work, all it asked for if
 * there is so much, and tells where there is more. A stream that has something behind its cursor goes before all others.
 */
export function checkReach(
  model: Model,
  observed: Observed,
  answer: ClaimAnswer,
  { total, isolated }: Request,
  { asked, cursors }: { readonly asked: readonly string[]; readonly cursors: readonly Cursor[] },
): void {
  const left = leftBehind(model, observed, asked);
  const wanted = left.filter(({ variant }) => variant === (isolated ?? ''));
  const [claim] = answer.claims;
  if (!claim) {
    expect(wanted).toEqual([]);
  } else {
    const taken = answer.items.map(({ pos }) => BigInt(pos)).sort((a, b) => (a < b ? -1 : 1));
    const [first = 0n, last = first] = [taken[0], taken.at(-1)];
    const cursor = BigInt(cursors.find(({ stream }) => stream === claim.stream)?.cursor ?? 0);
    const here = wanted.filter(({ stream }) => stream === claim.stream);
    if (answer.items.length < (isolated ? 1 : total)) expect(here).toEqual([]);
    expect(here.filter(({ pos }) => pos < last)).toEqual([]);
    const elsewhere = wanted.filter(({ stream }) => stream !== claim.stream);
    if (isolated || first >= cursor)
      expect(elsewhere.filter(({ priority }) => priority < claim.priority)).toEqual([]);
    if (!isolated && !answer.more) expect(elsewhere).toEqual([]);
  }
  if (isolated || answer.more) return;
  for (const sort of ['suspect', 'alone'] as const)
    if (left.some(({ variant }) => variant === sort))
      expect({ sort, waiting: answer.waiting[sort] }).toEqual({ sort, waiting: true });
}
