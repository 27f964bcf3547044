/** `tallyman rfid shipments …` */
import { type Command, Option } from 'commander';
import { given } from '../../given.ts';
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
import { facts, table } from '../../host/cli/output/table.ts';
import { terminalWidth } from '../../host/cli/output/terminal.ts';
import { count } from '../../host/cli/output/text.ts';
import { fullTime, relativeTime } from '../../host/cli/output/time.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { plateJson, shipmentJson } from './json.ts';
import { planShipments } from './shipments/plan.ts';
import { type ShipmentStatus, shipmentStatuses } from './shipments/reconcile.ts';
import { listShipments, requireShipment, type Shipment, type ShipmentLine } from './shipments/shipments.ts';

interface ListOptions extends PageOptions {
  readonly tenant: string;
  readonly status?: ShipmentStatus;
}

interface TenantOption extends JsonOption {
  readonly tenant: string;
}

export function addShipments(rfid: Command, { withTallyman }: CommandFrame): void {
  const shipments = group(rfid, 'shipments', 'outbound license plates, and the baskets that they are on');

  withPage(shipments.command('list'))
    .description('the newest first')
    .addOption(new Option('--status <status>', 'only these').choices(shipmentStatuses))
    .option('-t, --tenant <id>', 'of this tenant', 'default')
    .addHelpText('after', examples(['rfid shipments list', 'rfid shipments list --status LOADING --json']))
    .action((options: ListOptions) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { items, nextCursor } = await collect(options, (at) =>
          listShipments(database, options.tenant, given({ status: options.status }), at),
        );
        show(options.json, { items: items.map(shipmentJson), next_cursor: nextCursor }, () =>
          items.length === 0 ? 'There are no shipments.' : shipmentTable(items, now) + more(nextCursor),
        );
      }),
    );

  withJson(shipments.command('show'))
    .description('one shipment, with its plates and their baskets')
    .argument('<number>', 'its number')
    .option('-t, --tenant <id>', 'of this tenant', 'default')
    .addHelpText('after', examples(['rfid shipments show S-1']))
    .action((number: string, { tenant, json }: TenantOption) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { plates, ...shipment } = await requireShipment(database, tenant, number);
        show(json, { ...shipmentJson(shipment), plates: plates.map(plateJson) }, () =>
          [shipmentFacts(shipment, now), '', plateTable(plates, now)].join('\n'),
        );
      }),
    );

  withJson(shipments.command('add'))
    .description('plan a shipment, or add plates to it; as the import from a warehouse system does')
    .argument('<number>', 'its number')
    .requiredOption('--plate <oblpn...>', 'outbound license plates that leave with it')
    .option('-t, --tenant <id>', 'of this tenant', 'default')
    .addHelpText('after', examples(['rfid shipments add S-1 --plate OB-1 OB-2']))
    .action((number: string, { tenant, json, plate }: TenantOption & { plate: string[] }) =>
      withTallyman(async ({ tallyman: { database } }) => {
        const plates = plate.map((oblpn) => ({ oblpn, shipment: number }));
        const made = await database.transaction((tx) => planShipments(tx, tenant, plates));
        show(
          json,
          { number, new_plates: made },
          () => `Shipment ${number}: ${count(made, 'new plate')}, of ${plates.length}.`,
        );
      }),
    );
}

const shipmentTable = (shipments: readonly Shipment[], now: Date): string =>
  table<Shipment>(
    [
      { title: 'NUMBER', value: ({ number }) => number, shrinkTo: 10 },
      { title: 'STATUS', value: ({ status }) => status },
      { title: 'PLATES', value: ({ lines }) => lines, right: true },
      { title: 'LOADED', value: ({ loadedLines }) => loadedLines, right: true },
      { title: 'BACK', value: ({ closedLines }) => closedLines, right: true },
      { title: 'PLANNED', value: ({ createdAt }) => relativeTime(createdAt, now), leaveOut: 1 },
    ],
    shipments,
    terminalWidth(),
  );

const shipmentFacts = (shipment: Shipment, now: Date): string =>
  facts([
    ['shipment', shipment.number],
    ['status', shipment.status],
    ['planned', fullTime(shipment.createdAt, now)],
    ['loading', shipment.loadingAt && fullTime(shipment.loadingAt, now)],
    ['shipped', shipment.shippedAt && fullTime(shipment.shippedAt, now)],
    ['plates', `${shipment.lines}, ${shipment.loadedLines} loaded, ${shipment.closedLines} back`],
  ]);

const plateTable = (plates: readonly ShipmentLine[], now: Date): string =>
  table<ShipmentLine>(
    [
      { title: 'PLATE', value: ({ oblpn }) => oblpn, shrinkTo: 10 },
      { title: 'BASKET', value: ({ epcHex }) => epcHex ?? '(not loaded)' },
      { title: 'LOADED', value: ({ loadedAt }) => loadedAt && relativeTime(loadedAt, now) },
      { title: 'BY', value: ({ loadedBy }) => loadedBy, leaveOut: 1 },
      { title: 'BACK', value: ({ closedAt }) => closedAt && relativeTime(closedAt, now) },
    ],
    plates,
    terminalWidth(),
  );
