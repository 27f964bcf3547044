import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { Claim, ClaimedJob } from '../../../src/engine/jobs/claim.ts';
import type { WorkerEvents } from '../../../src/engine/jobs/events.ts';
import { Leases } from '../../../src/engine/jobs/leases.ts';

function held(token: string, id: string, pos: string) {
  const claim = new Claim(token, 1, 'q', 2);
  const job = new ClaimedJob(claim, undefined, pos, 'k', null, 0, { id });
  claim.jobs.push(job);
  claim.left = 1;
  return { claim, job };
}

function leases(...claims: Claim[]): Leases {
  const all = new Leases(new EventEmitter<WorkerEvents>());
  all.add(claims);
  return all;
}

const start = (job: ClaimedJob): void => {
  job.startedAt = 1;
  job.controller = new AbortController();
};

test('a notice of a cancel ends the run at that position', () => {
  const { claim, job } = held('1', '7', '100');
  start(job);
  leases(claim).cancel('7', '100');
  expect(job.controller?.signal.reason).toMatchObject({ code: 'CANCELLED' });
});

test('a notice that comes late does not touch the next run of the job', () => {
  const { claim, job } = held('2', '7', '200');
  start(job);
  leases(claim).cancel('7', '100');
  expect([job.controller?.signal.aborted, job.ended]).toEqual([false, false]);
});

test('of two runs of a job the one that is meant is ended', () => {
  const [before, now] = [held('1', '7', '100'), held('2', '7', '200')];
  start(before.job);
  start(now.job);
  leases(before.claim, now.claim).cancel('7', '100');
  expect([before, now].map(({ job }) => job.controller?.signal.aborted)).toEqual([true, false]);
});

test('another job at that position (a seq of another lane) goes on', () => {
  const { claim, job } = held('1', '8', '100');
  start(job);
  leases(claim).cancel('7', '100');
  expect(job.controller?.signal.aborted).toBe(false);
});

test('a job that has not started does not start', () => {
  const { claim, job } = held('1', '7', '100');
  leases(claim).cancel('7', '100');
  expect([job.ended, job.controller]).toEqual([true, undefined]);
});

test('a job that has ended is left alone', () => {
  const { claim, job } = held('1', '7', '100');
  start(job);
  job.ended = true;
  leases(claim).cancel('7', '100');
  expect(job.controller?.signal.aborted).toBe(false);
});

test('a claim that a heartbeat did not find is lost, unless it was taken after the heartbeat began', () => {
  const { claim, job } = held('1', '7', '100');
  start(job);
  const all = leases(claim);
  all.renewed(new Set(), claim.takenAt);
  expect([claim.lost, job.controller?.signal.aborted]).toEqual([false, false]);
  all.renewed(new Set(), claim.takenAt + 1);
  expect([claim.lost, job.controller?.signal.aborted]).toEqual([true, true]);
});

test('a claim that is lost tells once of each job that was running, and of no other', () => {
  const events = new EventEmitter<WorkerEvents>();
  const discarded: string[] = [];
  events.on('discarded', ({ id, reason }) => discarded.push(`${id}: ${reason}`));
  const claim = new Claim('1', 1, 'q', 2);
  const [running, waiting, ended] = ['7', '8', '9'].map(
    (id) => new ClaimedJob(claim, undefined, id, 'k', null, 0),
  ) as [ClaimedJob, ClaimedJob, ClaimedJob];
  claim.jobs.push(running, waiting, ended);
  start(running);
  start(ended);
  ended.ended = true;
  const all = new Leases(events);
  all.lose([claim], 'it was taken over');
  all.lose([claim], 'again');
  expect(discarded).toEqual(['7: it was taken over']);
  expect(running.controller?.signal.reason).toMatchObject({ code: 'LEASE_LOST' });
  expect([waiting.controller, ended.controller?.signal.aborted]).toEqual([undefined, false]);
});

test('a claim with nothing left is not lost when a heartbeat no longer finds it', () => {
  const { claim } = held('1', '7', '100');
  claim.left = 0;
  leases(claim).renewed(new Set(), claim.takenAt + 1);
  expect(claim.lost).toBe(false);
});

test('what is held of a queue: what is left of its claims that are not lost', () => {
  const [first, second, lost] = [held('1', '7', '1'), held('2', '8', '2'), held('3', '9', '3')];
  const other = new Claim('4', 2, 'other', 2);
  [second.claim.left, lost.claim.lost, other.left] = [4, true, 9];
  const all = leases(first.claim, second.claim, lost.claim, other);
  expect([all.heldOf('q'), all.heldOf('other'), all.heldOf('none')]).toEqual([5, 9, 0]);
});

test('claims that are done or lost are forgotten, others are not', () => {
  const [done, lost, live] = [held('1', '7', '1'), held('2', '8', '2'), held('3', '9', '3')];
  [done.claim.left, lost.claim.lost] = [0, true];
  const all = leases(done.claim, lost.claim, live.claim);
  all.forgetDone();
  expect(all.tokens).toEqual(['3']);
});

test('a heartbeat that renewed an unknown claim raises a suspicion, which is taken once', () => {
  const { claim } = held('1', '7', '100');
  const all = leases(claim);
  all.renewed(new Set(['1']), claim.takenAt + 1);
  expect(all.takeSuspicion()).toBe(false);
  all.renewed(new Set(['1', '2']), claim.takenAt + 1);
  expect([all.takeSuspicion(), all.takeSuspicion()]).toEqual([true, false]);
  all.suspectUnknown();
  expect(all.takeSuspicion()).toBe(true);
});
