import { TallymanError } from '../engine/errors.ts';

export const partNames = ['api', 'worker', 'webhooks', 'intake', 'labels'] as const;
export type PartName = (typeof partNames)[number];

/** The parts named, in the configuration or on the command line; all of them checked. */
export function partsOf(text: string): PartName[] {
  return text.split(',').map((name) => {
    const part = partNames.find((known) => known === name.trim());
    if (!part)
      throw new TallymanError(
        'BAD_OPTION',
        `there is no part "${name.trim()}"; there are ${partNames.join(', ')}`,
      );
    return part;
  });
}
