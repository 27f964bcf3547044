export const WORKLOADS = [
  { name: 'enqueue-one', unit: 'jobs/s', summary: '16 callers, each awaiting its own single enqueue' },
  { name: 'enqueue-bulk', unit: 'jobs/s', summary: '100,000 jobs in chunks, one after another' },
  { name: 'drain-20k', unit: 'jobs/s', summary: '20,000 waiting no-op jobs, one process, concurrency 24' },
  { name: 'drain-100k', unit: 'jobs/s', summary: '100,000 waiting no-op jobs' },
  { name: 'lanes', unit: 'jobs/s', summary: '2,000 lanes of 10 jobs each, order checked' },
  { name: 'lane-deep', unit: 'jobs/s', summary: 'one lane of 5,000 waiting jobs, one worker, order checked' },
  {
    name: 'lane-hot',
    unit: 'out/in',
    summary: 'one lane, written by 4 transactions of 5 ms while it is worked off',
  },
  { name: 'lane-hot-paced', unit: 'out/in', summary: 'the same, written by 1,000 single enqueues a second' },
  { name: 'wakeup-p50', unit: 'ms', summary: 'idle system, enqueue to handler, same process' },
  { name: 'wakeup-p50-remote', unit: 'ms', summary: 'the same with the enqueuer in another process' },
  {
    name: 'queues-1x4',
    unit: 'ms',
    summary: 'one queue, 4 worker processes, 40 jobs/s from another process',
  },
  { name: 'queues-8x4', unit: 'ms', summary: 'the same over 8 queues' },
  { name: 'drain-littered', unit: 'jobs/s', summary: '20,000 jobs among 100,000 dead or far-future ones' },
  { name: 'drain-held', unit: 'jobs/s', summary: '20,000 jobs while a session holds an old transaction' },
  { name: 'effects', unit: 'jobs/s', summary: '20,000 waiting jobs, each inserts one row of the user' },
  {
    name: 'takeover',
    unit: 's',
    summary: 'a worker process is killed: until its jobs start elsewhere, median',
  },
] as const;

export type Workload = (typeof WORKLOADS)[number]['name'];

/** How much of a workload one run does. */
export interface Size {
  /** Jobs enqueued and run; samples for the wake-ups. */
  readonly jobs: number;
  readonly lanes: number;
  readonly dead: number;
  readonly future: number;
  /** How long jobs arrive; 0 where a number of jobs is given. */
  readonly seconds: number;
}

const NOTHING = { lanes: 0, dead: 0, future: 0, seconds: 0 } as const;
const FULL: Record<Workload, Size> = {
  'enqueue-one': { jobs: 10_000, ...NOTHING },
  'enqueue-bulk': { jobs: 100_000, ...NOTHING },
  'drain-20k': { jobs: 20_000, ...NOTHING },
  'drain-100k': { jobs: 100_000, ...NOTHING },
  lanes: { ...NOTHING, jobs: 20_000, lanes: 2_000 },
  'lane-deep': { ...NOTHING, jobs: 5_000, lanes: 1 },
  'lane-hot': { ...NOTHING, jobs: 0, lanes: 1, seconds: 15 },
  'lane-hot-paced': { ...NOTHING, jobs: 0, lanes: 1, seconds: 15 },
  'wakeup-p50': { jobs: 200, ...NOTHING },
  'wakeup-p50-remote': { jobs: 200, ...NOTHING },
  'queues-1x4': { jobs: 440, ...NOTHING },
  'queues-8x4': { jobs: 440, ...NOTHING },
  'drain-littered': { ...NOTHING, jobs: 20_000, dead: 50_000, future: 50_000 },
  'drain-held': { jobs: 20_000, ...NOTHING },
  effects: { jobs: 20_000, ...NOTHING },
  takeover: { jobs: 100, ...NOTHING },
};

/** Slow systems (untuned peers) do less, above all with `--quick`; the tables say so under each figure. */
const SLOW: Partial<Record<Workload, number>> = {
  'enqueue-one': 5_000,
  'enqueue-bulk': 20_000,
  'lane-deep': 100,
};
const SLOW_QUICK: Partial<Record<Workload, number>> = {
  'enqueue-one': 2_000,
  'enqueue-bulk': 5_000,
  'drain-20k': 5_000,
  'drain-100k': 10_000,
  lanes: 4_000,
  'lane-deep': 30,
  'drain-littered': 5_000,
  'drain-held': 5_000,
};
const QUICK: Partial<Record<Workload, Partial<Size>>> = {
  'lane-deep': { jobs: 1_000 },
  'lane-hot': { seconds: 5 },
  'lane-hot-paced': { seconds: 5 },
  'wakeup-p50': { jobs: 100 },
  'wakeup-p50-remote': { jobs: 100 },
  'queues-1x4': { jobs: 240 },
  'queues-8x4': { jobs: 240 },
  effects: { jobs: 5_000 },
  takeover: { jobs: 30 },
};

export function sizeOf(workload: Workload, { quick, slow }: { quick: boolean; slow: boolean }): Size {
  const full = { ...FULL[workload], ...(quick && QUICK[workload]) };
  const slowJobs = (slow && ((quick ? SLOW_QUICK[workload] : undefined) ?? SLOW[workload])) || full.jobs;
  return { ...full, jobs: Math.min(full.jobs, slowJobs) };
}

/** The jobs of the workload name a lane, and run in order within it. */
export const hasLanes = (workload: Workload): boolean => workload.startsWith('lane');

/** The queues of a workload that has several or names one; else none, and a system uses its own. */
export function queuesOf(workload: Workload): readonly string[] {
  const count = workload === 'queues-8x4' ? 8 : workload === 'queues-1x4' ? 1 : 0;
  return Array.from({ length: count }, (_, number) => `queue-${number}`);
}

/** Jobs arrive one at a time on an idle system, and their latency counts. */
export const wantsWakeup = (workload: Workload): boolean =>
  workload.startsWith('wakeup') || workload.startsWith('queues') || workload.startsWith('lane-hot');

/** Within this a run has to give its result, in milliseconds. */
export const timeoutOf = (workload: Workload): number => (workload === 'takeover' ? 1_300_000 : 400_000);
