/** `tallyman rfid baskets|movements|refused-tags …` */
import { once } from 'node:events';
import { type Command, InvalidArgumentError } from 'commander';
import type { Queryable } from '../../engine/database/database.ts';
import { messageOf } from '../../engine/errors.ts';
import { parseInstant } from '../../engine/instant.ts';
import { given } from '../../given.ts';
import {
  collect,
  examples,
  group,
  more,
  type PageOptions,
  wholeNumber,
  withPage,
} from '../../host/cli/options.ts';
import { show } from '../../host/cli/output/print.ts';
import { facts, table } from '../../host/cli/output/table.ts';
import { terminalWidth } from '../../host/cli/output/terminal.ts';
import { fullTime, relativeTime } from '../../host/cli/output/time.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { listLocations, requireLocation } from '../iot/index.ts';
import { type Basket, listBaskets, listMovements, type Movement, requireBasket } from './baskets.ts';
import { epcisExport } from './epcis-export.ts';
import { basketJson, movementJson, refusedTagJson } from './json.ts';
import { listRefusedTags, type RefusedTag } from './refused-tags.ts';

interface TenantPage extends PageOptions {
  readonly tenant: string;
}

const withTenantPage = (command: Command): Command =>
  withPage(command).option('-t, --tenant <id>', 'of this tenant', 'default');

function instant(text: string): Date {
  try {
    return new Date(parseInstant(text) / 1000);
  } catch (error) {
    throw new InvalidArgumentError(messageOf(error));
  }
}

type NameOf = (id: string | null) => string;

async function placeNames(on: Queryable, tenantId: string): Promise<NameOf> {
  const places = new Map((await listLocations(on, tenantId)).map(({ id, name }) => [id, name]));
  return (id) => (id === null ? '' : (places.get(id) ?? `location ${id}`));
}

export function addBaskets(rfid: Command, { withTallyman }: CommandFrame): void {
  const baskets = group(rfid, 'baskets', 'one basket a tag');

  withTenantPage(baskets.command('list'))
    .description('where they are, the newest first')
    .option('--location <place>', 'those at this place: id or name')
    .addHelpText('after', examples(['rfid baskets list', 'rfid baskets list --location "dock 1" --json']))
    .action((options: TenantPage & { location?: string }) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { tenant, location } = options;
        const locationId =
          location === undefined ? undefined : (await requireLocation(database, tenant, location)).id;
        const found = await collect(options, (at) =>
          listBaskets(database, tenant, given({ locationId }), at),
        );
        const { items, nextCursor } = found;
        const nameOf = await placeNames(database, tenant);
        show(options.json, { items: items.map(basketJson), next_cursor: nextCursor }, () =>
          items.length === 0
            ? 'No basket has been seen.'
            : basketTable(items, nameOf, now) + more(nextCursor),
        );
      }),
    );

  withTenantPage(baskets.command('show'))
    .description('where a basket is, and its way there as a time line')
    .argument('<epc>', 'its tag: 24 hexadecimal digits')
    .addHelpText('after', examples(['rfid baskets show 3314257BF40C0E4000000190']))
    .action((epc: string, options: TenantPage) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { tenant } = options;
        const basket = await requireBasket(database, tenant, epc);
        const way = await collect(options, (at) =>
          listMovements(database, tenant, { basketId: basket.id }, at),
        );
        const nameOf = await placeNames(database, tenant);
        show(
          options.json,
          { ...basket, movements: way.items, nextCursor: way.nextCursor },
          () => timeLine(basket, way.items, nameOf, now) + more(way.nextCursor),
        );
      }),
    );

  withTenantPage(group(rfid, 'refused-tags', 'tags that do not count (rfid.tags)').command('list'))
    .description('which tags were refused, at which device, and how often')
    .addHelpText('after', examples(['rfid refused-tags list']))
    .action((options: TenantPage) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { items, nextCursor } = await collect(options, (at) =>
          listRefusedTags(database, options.tenant, at),
        );
        show(options.json, { items: items.map(refusedTagJson), next_cursor: nextCursor }, () =>
          items.length === 0 ? 'No tag was refused.' : refusedTable(items, now) + more(nextCursor),
        );
      }),
    );
}

interface MovementOptions extends TenantPage {
  readonly epc?: string;
  readonly from?: string;
  readonly to?: string;
}

export function addMovements(rfid: Command, { withTallyman }: CommandFrame): void {
  const movements = group(rfid, 'movements', 'baskets that were seen at another place than before');

  withTenantPage(movements.command('list'))
    .description('the newest first')
    .option('--epc <tag>', 'of this basket')
    .option('--from <time>', 'not before, such as 2026-03-01T00:00:00Z', instant)
    .option('--to <time>', 'before', instant)
    .addHelpText(
      'after',
      examples(['rfid movements list', 'rfid movements list --from 2026-03-01T00:00:00Z']),
    )
    .action((options: Omit<MovementOptions, 'from' | 'to'> & { from?: Date; to?: Date }) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { tenant, epc, from, to } = options;
        const basketId = epc === undefined ? undefined : (await requireBasket(database, tenant, epc)).id;
        const { items, nextCursor } = await collect(options, (at) =>
          listMovements(database, tenant, given({ basketId, from, to }), at),
        );
        const nameOf = await placeNames(database, tenant);
        show(options.json, { items: items.map(movementJson), next_cursor: nextCursor }, () =>
          items.length === 0 ? 'Nothing has moved.' : movementTable(items, nameOf, now) + more(nextCursor),
        );
      }),
    );

  movements
    .command('export')
    .description('all movements as one GS1 EPCIS 2.0 document (JSON-LD), in the order they were recorded')
    .option('--from <time>', 'not before')
    .option('--to <time>', 'before')
    .option('--cursor <cursor>', 'after those of an earlier document (its tallyman:nextCursor)')
    .option('-n, --limit <count>', 'how many at most (default: all)', wholeNumber(1, Number.MAX_SAFE_INTEGER))
    .option('-t, --tenant <id>', 'of this tenant', 'default')
    .addHelpText('after', examples(['rfid movements export > movements.jsonld']))
    .action(({ tenant, from, to, cursor, limit }: Omit<MovementOptions, 'epc'>) =>
      withTallyman(async ({ tallyman: { database } }) => {
        for await (const piece of await epcisExport(database, tenant, given({ from, to, cursor, limit })))
          if (!process.stdout.write(piece)) await once(process.stdout, 'drain');
        process.stdout.write('\n');
      }),
    );
}

const basketTable = (baskets: readonly Basket[], nameOf: NameOf, now: Date): string =>
  table<Basket>(
    [
      { title: 'TAG', value: ({ epcHex }) => epcHex },
      { title: 'AT', value: ({ locationId }) => nameOf(locationId), shrinkTo: 10 },
      { title: 'LAST SEEN', value: ({ lastSeenAt }) => lastSeenAt && relativeTime(lastSeenAt, now) },
      { title: 'BY', value: ({ lastDeviceId }) => lastDeviceId, shrinkTo: 8, leaveOut: 1 },
    ],
    baskets,
    terminalWidth(),
  );

const movementTable = (movements: readonly Movement[], nameOf: NameOf, now: Date): string =>
  table<Movement>(
    [
      { title: 'WHEN', value: ({ at }) => relativeTime(at, now) },
      { title: 'TAG', value: ({ epcHex }) => epcHex },
      {
        title: 'FROM',
        value: ({ fromLocationId }) => nameOf(fromLocationId) || '(first seen)',
        shrinkTo: 10,
      },
      { title: 'TO', value: ({ toLocationId }) => nameOf(toLocationId), shrinkTo: 10 },
      { title: 'BY', value: ({ deviceId }) => deviceId, shrinkTo: 8, leaveOut: 1 },
    ],
    movements,
    terminalWidth(),
  );

const refusedTable = (tags: readonly RefusedTag[], now: Date): string =>
  table<RefusedTag>(
    [
      { title: 'TAG', value: ({ epcHex }) => epcHex, shrinkTo: 24 },
      { title: 'DEVICE', value: ({ deviceId }) => deviceId, shrinkTo: 10 },
      { title: 'READS', value: ({ reads }) => reads, right: true },
      { title: 'LAST READ', value: ({ lastAt }) => relativeTime(lastAt, now) },
      { title: 'WHY', value: ({ errorMessage }) => errorMessage, shrinkTo: 20, leaveOut: 1 },
    ],
    tags,
    terminalWidth(),
  );

function timeLine(basket: Basket, way: readonly Movement[], nameOf: NameOf, now: Date): string {
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
