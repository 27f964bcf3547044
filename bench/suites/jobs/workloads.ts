export const WORKLOADS = [
  { name: 'enqueue-one', unit: 'jobs/s', summary: '16 callers, each awaiting its own single enqueue' },
  { name: 'enqueue-bulk', unit: 'jobs/s', summary: '100,000 jobs in chunks, one after another' },
  { name: 'drain-20k', unit: 'jobs/s', summary: '20,000 waiting no-op jobs, one process, concurrency 24' },
  { name: 'drain-100k', unit: 'jobs/s', summary: '100,000 waiting no-op jobs' },
  { name: 'lanes', unit: 'jobs/s', summary: '2,000 lanes of 10 jobs each, order checked' },
  { name: 'wakeup-p50', unit: 'ms', summary: 'idle system, enqueue to handler, same process' },
  { name: 'wakeup-p50-remote', unit: 'ms', summary: 'the same with the enqueuer in another process' },
  { name: 'drain-littered', unit: 'jobs/s', summary: '20,000 jobs among 100,000 dead or far-future ones' },
  { name: 'drain-held', unit: 'jobs/s', summary: '20,000 jobs while a session holds an old transaction' },
] as const;

export type Workload = (typeof WORKLOADS)[number]['name'];

/** How much of a workload one run does. */
export interface Size {
  /** Jobs enqueued and run; samples for the wake-ups. */
  readonly jobs: number;
  readonly lanes: number;
  readonly dead: number;
  readonly future: number;
}

const NOTHING = { lanes: 0, dead: 0, future: 0 } as const;
const FULL: Record<Workload, Size> = {
  'enqueue-one': { jobs: 10_000, ...NOTHING },
  'enqueue-bulk': { jobs: 100_000, ...NOTHING },
  'drain-20k': { jobs: 20_000, ...NOTHING },
  'drain-100k': { jobs: 100_000, ...NOTHING },
  lanes: { ...NOTHING, jobs: 20_000, lanes: 2_000 },
  'wakeup-p50': { jobs: 200, ...NOTHING },
  'wakeup-p50-remote': { jobs: 200, ...NOTHING },
  'drain-littered': { jobs: 20_000, lanes: 0, dead: 50_000, future: 50_000 },
  'drain-held': { jobs: 20_000, ...NOTHING },
};

/** Slow systems (untuned peers) do less, above all with `--quick`; the tables say so under each figure. */
const SLOW: Partial<Record<Workload, number>> = { 'enqueue-one': 5_000, 'enqueue-bulk': 20_000 };
const SLOW_QUICK: Partial<Record<Workload, number>> = {
  'enqueue-one': 2_000,
  'enqueue-bulk': 5_000,
  'drain-20k': 5_000,
  'drain-100k': 10_000,
  lanes: 4_000,
  'drain-littered': 5_000,
  'drain-held': 5_000,
};
const QUICK: Partial<Record<Workload, number>> = { 'wakeup-p50': 100, 'wakeup-p50-remote': 100 };

export function sizeOf(workload: Workload, { quick, slow }: { quick: boolean; slow: boolean }): Size {
  const full = FULL[workload];
  const jobs =
    (slow && quick ? SLOW_QUICK[workload] : undefined) ??
    (quick ? QUICK[workload] : undefined) ??
    (slow ? SLOW[workload] : undefined) ??
    full.jobs;
  return { ...full, jobs };
}

/** Within this a run has to give its result, in milliseconds. */
export const RUN_TIMEOUT = 400_000;
