export const WORKLOADS = [
  { name: 'append-paced', summary: '1,000 facts a second, whether those before are answered or not.' },
  { name: 'append-1', summary: '1 caller that waits for its answer before it appends the next fact.' },
  { name: 'append-16', summary: '16 such callers.' },
  { name: 'append-64', summary: '64 such callers.' },
  { name: 'append-256', summary: '256 such callers.' },
  {
    name: 'append-64-trimmed',
    summary: '64 callers on a stream whose first 10 million facts were trimmed; their ids are still known.',
  },
  { name: 'append-256-trimmed', summary: '256 callers on such a stream.' },
] as const;

export type Workload = (typeof WORKLOADS)[number]['name'];

export interface Size {
  /** 0: facts come at a fixed rate. */
  readonly callers: number;
  readonly perSecond: number;
  /** How long facts are appended before the clock starts. */
  readonly warmUpMs: number;
  readonly measureMs: number;
  /** Ids of facts that were trimmed before. */
  readonly trimmed: number;
}

export function sizeOf(workload: Workload, quick: boolean): Size {
  const [, callers, trimmed] = workload.split('-');
  const isPaced = workload === 'append-paced';
  return {
    callers: isPaced ? 0 : Number(callers),
    perSecond: isPaced ? 1000 : 0,
    warmUpMs: quick ? 500 : 2000,
    measureMs: quick ? 1500 : 6000,
    trimmed: trimmed === undefined ? 0 : quick ? 1_000_000 : 10_000_000,
  };
}
