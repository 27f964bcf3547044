/** Every system in the order of the tables; `--systems` takes these names. */
export const SYSTEMS = [
  { name: 'tallyman', summary: 'this engine; finished jobs are not kept' },
  { name: 'tallyman-history', summary: 'this engine; finished jobs kept as by default' },
  { name: 'graphile', summary: 'graphile-worker with its defaults' },
  { name: 'graphile-tuned', summary: 'graphile-worker with its best batched setting' },
  { name: 'pg-boss', summary: 'pg-boss with its best batched setting' },
  { name: 'bullmq-everysec', summary: 'BullMQ on Redis, append-only file synced each second' },
  { name: 'bullmq-always', summary: 'BullMQ on Redis, append-only file synced before each answer' },
  { name: 'limit', summary: 'no job system: bare batched statements, to show where PostgreSQL ends' },
] as const;

export type SystemName = (typeof SYSTEMS)[number]['name'];
