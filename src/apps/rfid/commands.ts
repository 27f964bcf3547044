import type { Command } from 'commander';
import type { Config } from '../../config/keys.ts';
import { prepareTenants } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { Tallyman } from '../../engine/tallyman.ts';
import { settingsOf } from '../../host/app.ts';
import { examples, group, type JsonOption, withJson } from '../../host/cli/options.ts';
import { show } from '../../host/cli/output/print.ts';
import { count } from '../../host/cli/output/text.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { onStopSignal } from '../../host/process/signals.ts';
import { addBaskets, addMovements } from './basket-commands.ts';
import { rfidKeys } from './config.ts';
import { plateImport } from './intake/upkeep.ts';
import { addShipments } from './shipment-commands.ts';
import { warehouseOf } from './wms/configured.ts';

export function addRfid(program: Command, frame: CommandFrame): void {
  const { withTallyman } = frame;
  const rfid = group(program, 'rfid', 'baskets that carry tags: where they are, and where they went');
  addBaskets(rfid, frame);
  addMovements(rfid, frame);
  addShipments(rfid, frame);

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
