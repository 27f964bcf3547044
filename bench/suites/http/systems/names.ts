export const SYSTEMS = [
  {
    name: 'tallyman',
    summary:
      '`tallyman serve --only api`: key, role, rate limit, tenant, audit, job; durable before the answer',
  },
  {
    name: 'fastify-insert',
    summary:
      'not a system: a bare Fastify route with one INSERT on a pool of 10, nothing checked or recorded',
  },
] as const;

export const BASELINE_SYSTEMS = [
  { name: 'tallyman-before', summary: 'the server of the other checkout' },
] as const;

export type SystemName = (typeof SYSTEMS)[number]['name'] | (typeof BASELINE_SYSTEMS)[number]['name'];
