import { Code, ConnectError } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { BoundaryCallError, callError } from '../../../../src/apps/boundary/sdk/call-error.ts';
import { withRetries } from '../../../../src/apps/boundary/sdk/retry.ts';

const fast = { baseMs: 1, maxMs: 1 };

function answered(message: string, code: Code): ConnectError {
  const error = new ConnectError(message, code);
  error.isWireError = true;
  return error;
}

/** How often the work is done before its error is passed on. */
async function attempts(error: unknown, retries?: number): Promise<number> {
  let count = 0;
  const work = async (): Promise<never> => {
    count += 1;
    throw error;
  };
  await expect(
    withRetries(work, { ...fast, ...(retries !== undefined && { retries }) }),
  ).rejects.toBeInstanceOf(BoundaryCallError);
  return count;
}

test('BND-14: what may pass is tried four times in all, or as often as is said', async () => {
  const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
  for (const error of [
    answered('the database cannot be reached', Code.Unavailable),
    answered('too slow', Code.DeadlineExceeded),
    answered('busy: many bytes wait', Code.ResourceExhausted),
    answered('stopping: the node stops', Code.Aborted),
    new ConnectError('the operation timed out', Code.DeadlineExceeded),
    new ConnectError('http/2 stream closed', Code.Canceled),
    new ConnectError('read ECONNRESET', Code.Aborted, undefined, undefined, reset),
    new ConnectError('HTTP 503', Code.Unavailable),
    reset,
  ])
    expect([error.message, await attempts(error)]).toEqual([error.message, 4]);
  expect(await attempts(reset, 0)).toBe(1);
  expect(await attempts(reset, 7)).toBe(8);
});

test('BND-14: an answer that says no is final', async () => {
  const untrusted = Object.assign(new Error('self-signed'), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
  for (const error of [
    answered('conflicting_duplicate: it was used before', Code.AlreadyExists),
    answered('invalid_field: fact.subject must be kind:id', Code.InvalidArgument),
    answered('object_not_stored: put it first', Code.FailedPrecondition),
    answered('stream_full: it takes no more', Code.ResourceExhausted),
    answered('not_allowed: its role is consumer', Code.PermissionDenied),
    answered('the node failed', Code.Internal),
    new ConnectError('HTTP 404', Code.Unimplemented),
    new ConnectError('self-signed', Code.Internal, undefined, undefined, untrusted),
  ])
    expect([error.message, await attempts(error)]).toEqual([error.message, 1]);
});

test('BND-14: the first success counts, and a signal ends the waiting', async () => {
  let count = 0;
  const third = async (): Promise<number> => {
    count += 1;
    if (count < 3) throw new ConnectError('gone', Code.Unavailable);
    return count;
  };
  expect(await withRetries(third, fast)).toBe(3);
  const stop = new AbortController();
  const waiting = withRetries(
    async () => {
      stop.abort();
      throw new ConnectError('gone', Code.Unavailable);
    },
    { baseMs: 3_600_000 },
    stop.signal,
  );
  await expect(waiting).rejects.toThrow('gone');
});

test('BND-14: reason, code and message of an answer are told apart', () => {
  expect(callError(answered('conflicting_duplicate: id "a": used', Code.AlreadyExists))).toMatchObject({
    code: 'ALREADY_EXISTS',
    reason: 'conflicting_duplicate',
    message: 'id "a": used',
    isAnswer: true,
  });
  expect(callError(answered('a client certificate is needed', Code.Unauthenticated))).toMatchObject({
    code: 'UNAUTHENTICATED',
    reason: 'unauthenticated',
    mayPass: false,
  });
  expect(callError(new Error('read ECONNRESET'))).toMatchObject({ reason: 'no_answer', isAnswer: false });
});
