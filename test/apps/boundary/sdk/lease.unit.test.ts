import { expect, onTestFinished, test, vi } from 'vitest';
import { BoundaryCallError } from '../../../../src/apps/boundary/sdk/call-error.ts';
import { Lease } from '../../../../src/apps/boundary/sdk/consumer/lease.ts';

function fakeClock(): void {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
}

const answer = (reason: string) =>
  new BoundaryCallError('FAILED_PRECONDITION', reason, reason, { mayPass: false, isAnswer: true });

test('BND-14: while a batch is handled the lease is renewed, and no longer', async () => {
  fakeClock();
  let renewals = 0;
  const lease = new Lease(async () => {
    renewals += 1;
  });
  await vi.advanceTimersByTimeAsync(35_000);
  expect(renewals).toBe(3);
  await lease.check();
  await lease.end();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(renewals).toBe(3);
});

test('BND-14: another instance that has taken over ends the lease; a node that is gone does not', async () => {
  fakeClock();
  let problem: Error = new Error('read ECONNRESET');
  const lease = new Lease(() => Promise.reject(problem));
  onTestFinished(() => lease.end());
  await vi.advanceTimersByTimeAsync(10_000);
  expect(lease.signal.aborted).toBe(false);
  await lease.check();
  problem = answer('consumer_in_use');
  await vi.advanceTimersByTimeAsync(10_000);
  expect(lease.signal.reason).toBe(problem);
  await expect(lease.check()).rejects.toBe(problem);
});

test('BND-14: a process that was paused asks before it goes on with its batch', async () => {
  fakeClock();
  const lease = new Lease(() => Promise.reject(answer('consumer_taken_over')));
  onTestFinished(() => lease.end());
  // No timer has run meanwhile.
  const later = performance.now() + 60_000;
  vi.spyOn(performance, 'now').mockReturnValue(later);
  onTestFinished(() => void vi.restoreAllMocks());
  await expect(lease.check()).rejects.toMatchObject({ reason: 'consumer_taken_over' });
});
