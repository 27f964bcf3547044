export const WORKLOADS = [
  {
    name: 'items',
    summary: 'Items of one model, 77 facts: each is compiled for itself, signed, labelled and activated.',
  },
  {
    name: 'items-10x',
    summary: 'The same with ten times the facts: a bill of 720 materials.',
  },
  {
    name: 'full',
    summary:
      'Full compiles: every version holds all fields of the model with their proof (110 kB), 77 facts.',
  },
  {
    name: 'full-10x',
    summary: 'The same with ten times the facts: a bill of 720 materials, and a proof to match.',
  },
] as const;

export type Workload = (typeof WORKLOADS)[number]['name'];

export interface Size {
  readonly versions: number;
  /** Each material of the sample so many times, under names of its own. */
  readonly factor: number;
  /** Versions of an item, or of the model. */
  readonly isFull: boolean;
}

export const sizeOf = (workload: Workload, quick: boolean): Size => {
  const isFull = workload.startsWith('full');
  const factor = workload.endsWith('10x') ? 40 : 1;
  const versions = isFull ? 400 / (factor === 1 ? 1 : 4) : 4000;
  return { versions: versions / (quick ? 4 : 1), factor, isFull };
};
