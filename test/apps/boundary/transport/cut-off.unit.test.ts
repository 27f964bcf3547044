import { Code, ConnectError, type UnaryRequest, type UnaryResponse } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { repeatCutOff } from '../../../../src/apps/boundary/transport/cut-off.ts';

const request = (signal = new AbortController().signal) => ({ stream: false, signal }) as UnaryRequest;
const response = { stream: false } as UnaryResponse;
/** As the client of Connect reports it. */
const cutOff = (): ConnectError =>
  ConnectError.from(Object.assign(new Error('Premature close'), { code: 'ERR_STREAM_PREMATURE_CLOSE' }));

/** A call that fails with these errors before it succeeds. */
function failing(...errors: Error[]) {
  let calls = 0;
  const call = repeatCutOff(async () => {
    calls += 1;
    const error = errors.shift();
    if (error) throw error;
    return response;
  });
  return { call, calls: () => calls };
}

test('BND-14: a complete answer that Node takes for cut off is asked for again', async () => {
  const { call, calls } = failing(cutOff(), cutOff());
  expect(await call(request())).toBe(response);
  expect(calls()).toBe(3);
});

test('BND-14: it is not asked for forever, and other errors are the caller’s at once', async () => {
  const cut = failing(...Array.from({ length: 20 }, cutOff));
  await expect(cut.call(request())).rejects.toThrow('Premature close');
  expect(cut.calls()).toBe(5);
  const refused = failing(new ConnectError('no', Code.AlreadyExists));
  await expect(refused.call(request())).rejects.toThrow('no');
  expect(refused.calls()).toBe(1);
});

test('BND-14: a call that was given up is not made again', async () => {
  const { call, calls } = failing(cutOff());
  await expect(call(request(AbortSignal.abort()))).rejects.toThrow('Premature close');
  expect(calls()).toBe(1);
});
