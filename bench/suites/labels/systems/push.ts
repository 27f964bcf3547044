import { createGateway } from '../../../../src/apps/labels/gateways/index.ts';
import type { LabelImage } from '../../../../src/apps/labels/render/index.ts';
import { forEach, gateway, imageOf, mac, verifyShown } from '../shop.ts';
import type { System } from './system.ts';

export const push: System = {
  async open({ simulator, labels }) {
    const aims = createGateway(gateway(simulator));
    const images: LabelImage[] = [];
    await forEach(labels, async (label) => {
      images[label] = await imageOf(label, 'after');
    });
    const { signal } = new AbortController();
    return {
      run: () =>
        forEach(labels, (label) =>
          aims.push({ mac: mac(label), page: 1, image: images[label] as LabelImage }, signal),
        ),
      verify: () => verifyShown(simulator, labels),
      close: () => aims.close(),
    };
  },
};
