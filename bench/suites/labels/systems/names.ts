export const SYSTEMS = [
  { name: 'tallyman', summary: 'from the change of a price to its label showing it' },
  { name: 'render', summary: 'not a system: the same images, rendered and nothing else' },
  {
    name: 'push',
    summary: 'not a system: the same images, ready-made, to the same gateway and nothing else',
  },
] as const;

export type SystemName = (typeof SYSTEMS)[number]['name'];
