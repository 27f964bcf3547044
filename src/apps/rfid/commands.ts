import type { Command } from 'commander';
import type { Config } from '../../config/keys.ts';
import { prepareTenants } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { Tallyman } from '../../engine/tallyman.ts';
import { settingsOf } from '../../host/app.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  type PageOptions,
  withJson,
  withPage,
} from '../../host/cli/options.ts';
import { show } from '../../host/cli/output/print.ts';
import { facts } from '../../host/cli/output/table.ts';
import { count } from '../../host/cli/output/text.ts';
import { fullTime } from '../../host/cli/output/time.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { onStopSignal } from '../../host/process/signals.ts';
import { listLocations } from '../iot/index.ts';
import { type Basket, listMovements, type Movement, requireBasket } from './baskets.ts';
import { rfidKeys } from './config.ts';
import { plateImport } from './intake/upkeep.ts';
import { warehouseOf } from './wms/configured.ts';

export function addRfid(program: Command, { withTallyman }: CommandFrame): void {
  const rfid = group(program, 'rfid', 'baskets that carry tags: where they are, and where they went');
  const baskets = group(rfid, 'baskets', 'one basket a tag');

  withPage(baskets.command('show'))
    .description('where a basket is, and its way there as a time line')
    .argument('<epc>', 'its tag: 24 hexadecimal digits')
    .option('-t, --tenant <id>', 'of this tenant', 'default')
    .addHelpText('after', examples(['rfid baskets show 3314257BF40C0E4000000190']))
    .action((epc: string, options: PageOptions & { tenant: string }) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { tenant } = options;
        const basket = await requireBasket(database, tenant, epc);
        const way = await collect(options, (at) =>
          listMovements(database, tenant, { basketId: basket.id }, at),
        );
        const places = new Map((await listLocations(database, tenant)).map(({ id, name }) => [id, name]));
        show(
          options.json,
          { ...basket, movements: way.items, nextCursor: way.nextCursor },
          () => timeLine(basket, way.items, places, now) + more(way.nextCursor),
        );
      }),
    );

  withJson(rfid.command('import-plates'))
    .description(
      'fetch outbound license plates from the warehouse system now (wms.url), without waiting for the schedule',
    )
    .option('--dry-run', 'show what would be new, and change nothing')
    .addHelpText('after', examples(['rfid import-plates', 'rfid import-plates --dry-run --json']))
    .action((options: ImportPlatesOptions) =>
      withTallyman(({ tallyman, config }) => fetchPlates(tallyman, config, options)),
    );
}

interface ImportPlatesOptions extends JsonOption {
  readonly dryRun?: boolean;
}

async function fetchPlates(tallyman: Tallyman, config: Config, options: ImportPlatesOptions): Promise<void> {
  const warehouse = warehouseOf(settingsOf(rfidKeys, config));
  if (!warehouse)
    throw new TallymanError(
      'BAD_CONFIG',
      'wms.url (TALLYMAN_WMS_URL) is not set: there is no warehouse system to ask',
    );
  const stopping = new AbortController();
  onStopSignal(() => stopping.abort());
  const plates = plateImport(tallyman, warehouse);
  if (options.dryRun) {
    const preview = await plates.preview(tallyman.database, stopping.signal);
    return show(
      options.json,
      preview,
      () =>
        `${count(preview.plates, 'plate')} on ${count(preview.pages, 'page')}, ${preview.unknown.length} new. Nothing was changed.`,
    );
  }
  await prepareTenants(tallyman.database);
  const counts = await plates.run(stopping.signal);
  if (!counts)
    throw new TallymanError(
      'BAD_STATE',
      'another process is fetching plates; try again when it has finished',
    );
  show(
    options.json,
    counts,
    () => `${count(counts.plates, 'plate')} on ${count(counts.pages, 'page')}, ${counts.planned} new.`,
  );
}

function timeLine(
  basket: Basket,
  way: readonly Movement[],
  places: ReadonlyMap<string, string>,
  now: Date,
): string {
  const nameOf = (id: string | null): string => (id === null ? '' : (places.get(id) ?? `location ${id}`));
  const head = facts([
    ['basket', basket.epcHex],
    ['tag', basket.epcUri],
    ['is at', nameOf(basket.locationId) || 'nowhere yet'],
    [
      'last seen',
      basket.lastSeenAt ? `${fullTime(basket.lastSeenAt, now)} by ${basket.lastDeviceId}` : 'never',
    ],
  ]);
  const steps = way.map(
    ({ at, fromLocationId, toLocationId, deviceId }) =>
      `  ${fullTime(at, now)}  ${fromLocationId === null ? 'first seen at' : `${nameOf(fromLocationId)} →`} ${nameOf(toLocationId)}  (${deviceId})`,
  );
  return [head, '', ...(steps.length > 0 ? steps : ['  It has not moved.'])].join('\n');
}
