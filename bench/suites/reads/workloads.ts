export const WORKLOADS = [
  {
    name: 'reads',
    unit: 'reads/s',
    summary:
      'Tag reads into an empty database of 10,000 baskets to come: each counted once, movements found.',
  },
  {
    name: 'reads-1m-baskets',
    unit: 'reads/s',
    summary: 'The same among 1,000,000 baskets, seen at random, and 1,000,000 reads processed before.',
  },
  {
    name: 'reads-million',
    unit: 'reads/s',
    summary: '1,000,000 reads in one go; `growth` is what the process kept of the last half, in MB.',
  },
  {
    name: 'reads-late',
    unit: 'reads/s',
    summary:
      'The first workload with one read in twenty late by 10,000 reads (two seconds): put in its place.',
  },
  {
    name: 'reads-listened',
    unit: 'reads/s',
    summary: 'The first workload while a listener in the same process follows the events `rfid.movement`.',
  },
] as const;

export type Workload = (typeof WORKLOADS)[number]['name'];

export interface Size {
  readonly reads: number;
  readonly baskets: number;
  /** Baskets, and a processed read of each, that are there before the clock starts. */
  readonly preloaded: number;
  /** One read in twenty comes late. */
  readonly late?: boolean;
  /** Somebody follows the movements. */
  readonly listened?: boolean;
}

/** The hand-written service needs a minute for what COPY does in one second. */
export function sizeOf(workload: Workload, slow: boolean, quick: boolean): Size {
  if (workload === 'reads-million')
    return { reads: quick ? 200_000 : 1_000_000, baskets: 10_000, preloaded: 0 };
  const reads = slow ? (quick ? 2_000 : 10_000) : quick ? 40_000 : 200_000;
  if (workload === 'reads-1m-baskets')
    return { reads, baskets: quick ? 100_000 : 1_000_000, preloaded: quick ? 100_000 : 1_000_000 };
  const size = { reads, baskets: 10_000, preloaded: 0 };
  if (workload === 'reads-late') return { ...size, late: true };
  return workload === 'reads-listened' ? { ...size, listened: true } : size;
}
