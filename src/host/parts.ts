import { TallymanError } from '../engine/errors.ts';
import type { App } from './app.ts';

/** What `tallyman serve` can run: the API, a worker for the user's kinds, and each app with background work. */
export const partNames = (apps: readonly App[]): readonly string[] => [
  'api',
  'worker',
  ...apps.filter(({ start }) => start !== undefined).map(({ name }) => name),
];

/** The parts named in the configuration or on the command line, all checked. `all` means every part. */
export function partsOf(text: string, apps: readonly App[]): readonly string[] {
  const known = partNames(apps);
  const names = [...new Set(text.split(',').map((given) => given.trim()))];
  for (const name of names)
    if (name !== 'all' && !known.includes(name))
      throw new TallymanError(
        'BAD_OPTION',
        `there is no part "${name}"; there are ${known.join(', ')}, and all`,
      );
  return names.includes('all') ? known : names;
}
