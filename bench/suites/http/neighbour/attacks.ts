import { KIND } from '../workloads.ts';

/** What one tenant does to the server: requests that its connections send again and again, in turn. */
export interface Attack {
  readonly name: string;
  readonly connections: number;
  readonly requests: readonly AttackRequest[];
  /** The answers never end: what is open is closed and opened again. */
  readonly streams?: true;
}

export interface AttackRequest {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly path: string;
  readonly body?: string;
}

const post = (path: string, body: unknown): AttackRequest => ({
  method: 'POST',
  path,
  body: typeof body === 'string' ? body : JSON.stringify(body),
});
const get = (path: string): AttackRequest => ({ method: 'GET', path });

const jobs = (amount: number, payload: unknown) => ({
  jobs: Array.from({ length: amount }, () => ({ kind: KIND, payload })),
});

/** A body of `bytes` that is costly to parse. */
const manyNumbers = (bytes: number) => Array.from({ length: bytes / 2 }, (_, i) => i % 10);

export const ATTACKS: readonly Attack[] = [
  {
    name: 'batches',
    connections: 64,
    requests: [post('/v1/jobs/batch', jobs(1000, { text: 'x'.repeat(1000) }))],
  },
  { name: 'lists', connections: 64, requests: [get('/v1/jobs?limit=200')] },
  {
    name: 'mixed',
    connections: 64,
    requests: [
      post('/v1/jobs/batch', jobs(500, { parcel: 4711, street: '12 Engine Road' })),
      get('/v1/jobs?limit=200'),
    ],
  },
  {
    name: 'payloads',
    connections: 64,
    requests: [post('/v1/jobs', { kind: KIND, payload: manyNumbers(1_000_000) })],
  },
  {
    name: 'invalid',
    connections: 64,
    requests: [
      post('/v1/jobs/batch', `{"jobs":[${'{"kind":7},'.repeat(999)}{}],"x":[${'0,'.repeat(900_000)}0]}`),
      post('/v1/jobs', `{"kind":"${KIND}","payload":[${'0,'.repeat(900_000)}`),
      post('/v1/jobs', `{"kind":"${KIND}","payload":${'['.repeat(900_000)}`),
    ],
  },
  {
    name: 'small',
    connections: 256,
    requests: [post('/v1/jobs', { kind: KIND, payload: { parcel: 4711 } }), get('/v1/jobs/counts')],
  },
  { name: 'streams', connections: 120, requests: [get('/v1/stream')], streams: true },
];
