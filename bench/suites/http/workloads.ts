export const KIND = 'bench';

export interface Workload {
  readonly name: string;
  readonly summary: string;
  readonly connections: number;
  readonly jobsPerRequest: number;
  readonly tenants: number;
  /** Each request has an Idempotency-Key of its own. */
  readonly keyed: boolean;
  readonly requests: number;
}

const single = { connections: 64, jobsPerRequest: 1, tenants: 1, keyed: false, requests: 40_000 };

export const WORKLOADS: readonly Workload[] = [
  { ...single, name: 'single', summary: 'POST /v1/jobs, one job a request, 64 connections.' },
  {
    ...single,
    name: 'single-keyed',
    keyed: true,
    summary: 'The same, each request with an Idempotency-Key.',
  },
  {
    ...single,
    name: 'single-tenants',
    tenants: 16,
    summary: 'The same without keys, in turn for 16 tenants.',
  },
  {
    ...single,
    name: 'batch-500',
    connections: 2,
    jobsPerRequest: 500,
    requests: 800,
    summary: 'POST /v1/jobs/batch, 500 jobs a request, 2 connections.',
  },
];

/** The requests of a run: some of them first, to warm the server, are not measured. */
export const requestsOf = ({ requests }: Workload, quick: boolean) => {
  const measured = quick ? requests / 4 : requests;
  return { measured, warmUp: measured / 8 };
};
