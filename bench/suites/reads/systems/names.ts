export const SYSTEMS = [
  {
    name: 'hand-written',
    summary: 'a service as usually written: one transaction a read, one connection',
    slow: true,
  },
  { name: 'hand-written-8', summary: 'the same with eight connections', slow: true },
  { name: 'tallyman', summary: 'processTagReads, eight callers with 500 reads each', slow: false },
  {
    name: 'tallyman-mqtt',
    summary: 'end to end: published at QoS 2, five reads a message, received, committed, acknowledged',
    slow: false,
  },
  {
    name: 'broker',
    summary: 'not a system: the same messages through the broker, acknowledged and thrown away',
    slow: false,
  },
  { name: 'copy', summary: 'not a system: COPY of the rows that tallyman wrote, in one go', slow: false },
] as const;

export type SystemName = (typeof SYSTEMS)[number]['name'];
