export const SYSTEMS = [
  { name: 'tallyman', summary: 'the whole chain, with one process of workers for each processor' },
  { name: 'tallyman-1', summary: 'the same with one process of workers' },
  { name: 'compile', summary: 'not a system: compiling alone, in one process, without database' },
  { name: 'codes', summary: 'not a system: the document codes alone, in one process' },
] as const;

export type SystemName = (typeof SYSTEMS)[number]['name'];
