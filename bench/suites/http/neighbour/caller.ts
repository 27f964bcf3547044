/** A tenant that sends a little, at a fixed rate: a request is sent when it is due, whether the one before was answered or not. */
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { serve } from '../../../lib/child.ts';
import { KIND } from '../workloads.ts';

export interface CallerTask {
  readonly url: string;
  readonly caller: Readonly<Record<string, string>>;
  readonly perSecond: number;
  /** Before the first request. */
  readonly waitMs: number;
  readonly seconds: number;
}

/** Times from when a request was due to the end of its answer, in ms. */
export interface Called {
  readonly latencies: readonly number[];
}

const body = JSON.stringify({ kind: KIND, payload: { parcel: 4711, to: 'recipient-1' } });

serve<CallerTask, Called>(async ({ url, caller, perSecond, waitMs, seconds }) => {
  const agent = new Agent({ keepAlive: true, scheduling: 'fifo' });
  const ask = (i: number): Promise<number> =>
    new Promise((done, failed) => {
      const writes = i % 2 === 0;
      const sent = request(`${url}${writes ? '/v1/jobs' : '/v1/jobs?limit=20'}`, {
        method: writes ? 'POST' : 'GET',
        agent,
        timeout: 30_000,
        headers: {
          ...caller,
          ...(writes && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
        },
      });
      sent.on('response', (response) => {
        response.resume();
        response.on('end', () => done(response.statusCode ?? 0));
      });
      sent.on('timeout', () => sent.destroy(new Error('no answer within 30 s')));
      sent.on('error', failed);
      sent.end(writes ? body : undefined);
    });
  // Its connections, and what both processes compile at first, are no part of the figure.
  for (let i = 0; i < 20; i += 1) await ask(i);
  await sleep(waitMs);
  const begun = performance.now();
  const answers: Promise<number>[] = [];
  for (let i = 0; i < perSecond * seconds; i += 1) {
    const dueAt = begun + (i * 1000) / perSecond;
    await sleep(Math.max(0, dueAt - performance.now()));
    answers.push(
      ask(i).then((status) => {
        if (status >= 300) throw new Error(`a quiet tenant was answered with ${status}`);
        return performance.now() - dueAt;
      }),
    );
  }
  const latencies = await Promise.all(answers);
  agent.destroy();
  return { latencies };
});
