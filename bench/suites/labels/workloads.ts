export const WORKLOADS = [
  {
    name: 'labels-2k',
    summary:
      '2,000 labels of 296×160 in three colours, each with a product of its own, whose price changes once.',
  },
  { name: 'labels-20k', summary: 'The same with ten times the labels and changes.' },
] as const;

export type Workload = (typeof WORKLOADS)[number]['name'];

/** Labels, and changes: one each. */
export const labelsOf = (workload: Workload, quick: boolean): number =>
  (workload === 'labels-2k' ? 2_000 : 20_000) / (quick ? 4 : 1);
