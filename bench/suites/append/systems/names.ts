export const SYSTEMS = [
  { name: 'tallyman', summary: 'ours in process: a fact checked, made canonical, appended to its stream' },
  { name: 'tallyman-single', summary: 'ours over the network: AppendFact, HTTP/2 with mutual TLS' },
  {
    name: 'tallyman-batched',
    summary: 'ours over the network: AppendFacts, with what gathered while a call was under way',
  },
  { name: 'jetstream', summary: 'NATS JetStream, sync always: a message a fact, refused if its id is taken' },
  { name: 'jetstream-batched', summary: 'the same in atomic batches of what gathered' },
  {
    name: 'jetstream-default',
    summary: 'NATS JetStream as it is installed: acknowledges before it is on disk',
  },
  { name: 'insert', summary: 'INSERT … ON CONFLICT DO NOTHING, a statement and a commit for each fact' },
  {
    name: 'group-commit',
    summary: 'bare group commit: one INSERT … ON CONFLICT DO NOTHING for what gathered; no chain, no epoch',
  },
  { name: 'file', summary: 'not a system: what gathered is written to a file, then fdatasync' },
] as const;

export type SystemName = (typeof SYSTEMS)[number]['name'];
