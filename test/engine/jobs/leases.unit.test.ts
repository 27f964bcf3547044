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
