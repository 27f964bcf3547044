/** The load generator, in a process of its own, on the same machine as the server and the database. */
import { randomUUID } from 'node:crypto';
import autocannon from 'autocannon';
import { serve } from '../../lib/child.ts';
import { percentile } from '../../lib/figures.ts';
import { KIND, type Workload } from './workloads.ts';

export interface Task {
  readonly url: string;
  readonly workload: Workload;
  readonly callers: readonly Readonly<Record<string, string>>[];
  readonly warmUp: number;
  readonly measured: number;
}

export interface Measured {
  /** Jobs a second. */
  readonly value: number;
  /** Of requests, in ms. */
  readonly p50: number;
  readonly p99: number;
}

serve<Task, Measured>(async (task, report) => {
  report('warming up');
  await load(task, task.warmUp);
  report('measuring');
  const { seconds, latencies } = await load(task, task.measured);
  return {
    value: (task.measured * task.workload.jobsPerRequest) / seconds,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
  };
});

async function load({ url, workload, callers }: Task, amount: number) {
  const { connections, jobsPerRequest, keyed } = workload;
  const job = { kind: KIND, payload: { parcel: 4711, to: 'recipient-1', street: '12 Engine Road' } };
  const body = JSON.stringify(
    jobsPerRequest === 1 ? job : { jobs: Array.from({ length: jobsPerRequest }, () => job) },
  );
  const path = jobsPerRequest === 1 ? '/v1/jobs' : '/v1/jobs/batch';
  const run = randomUUID();
  let sent = 0;
  const latencies: number[] = [];
  const begun = performance.now();
  let ended = begun;
  const load = autocannon({
    url,
    connections: Math.min(connections, amount),
    amount,
    timeout: 30,
    requests: callers.map((caller) => {
      const headers = { 'content-type': 'application/json', ...caller };
      return {
        method: 'POST' as const,
        path,
        headers,
        body,
        ...(keyed && {
          setupRequest: (request: autocannon.Request) => ({
            ...request,
            headers: { ...headers, 'idempotency-key': `${run}-${sent++}` },
          }),
        }),
      };
    }),
  });
  // Its own figures are of whole milliseconds, and of whole seconds for the length of a run.
  (load as typeof load & autocannon.Instance).on('response', (_client, _status, _bytes, ms) => {
    latencies.push(ms);
    ended = performance.now();
  });
  const { errors, timeouts, non2xx } = await load;
  if (errors + timeouts + non2xx > 0)
    throw new Error(`${errors} errors, ${timeouts} timeouts, ${non2xx} answers other than 2xx`);
  return { seconds: (ended - begun) / 1000, latencies };
}
