/** Every system in the order of the tables; `--systems` takes these names. */
export const SYSTEMS = [
  { name: 'tallyman', summary: 'this engine; finished jobs are not kept' },
  { name: 'tallyman-history', summary: 'this engine; finished jobs kept as by default' },
  { name: 'tallyman-statement', summary: 'only effects: ctx.commit with one statement, atomic' },
  { name: 'tallyman-plain', summary: 'only effects: rows written on the pool, not atomic with the job' },
  { name: 'graphile', summary: 'graphile-worker with its defaults' },
  { name: 'graphile-tuned', summary: 'graphile-worker with its best batched setting' },
  { name: 'pg-boss', summary: 'pg-boss with its best batched setting' },
  {
    name: 'pg-boss-atomic',
    summary: 'only effects: pg-boss with `transactional`, a batch in one transaction',
  },
  { name: 'bullmq-everysec', summary: 'BullMQ on Redis, append-only file synced each second' },
  { name: 'bullmq-always', summary: 'BullMQ on Redis, append-only file synced before each answer' },
  { name: 'limit', summary: 'no job system: bare batched statements, to show where PostgreSQL ends' },
] as const;

/** What `--baseline` adds. */
export const BASELINE_SYSTEMS = [
  { name: 'tallyman-before', summary: 'the engine of the checkout that --baseline names, as tallyman' },
  { name: 'tallyman-before-history', summary: 'the same, as tallyman-history' },
] as const;

export type SystemName = (typeof SYSTEMS)[number]['name'] | (typeof BASELINE_SYSTEMS)[number]['name'];
