import { forEach, imageOf } from '../shop.ts';
import type { System } from './system.ts';

export const render: System = {
  async open({ labels }) {
    const hashes = new Set<string>();
    await imageOf(labels, 'before');
    return {
      run: () => forEach(labels, async (label) => hashes.add((await imageOf(label, 'after')).hash)),
      async verify() {
        if (hashes.size !== labels) throw new Error(`${hashes.size} different images of ${labels}`);
      },
      close: async () => {},
    };
  },
};
