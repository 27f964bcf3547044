import type { Command } from 'commander';
import { iotComponent } from '../apps/iot/component.ts';
import { listLocations } from '../apps/iot/places.ts';
import { type Basket, listMovements, type Movement, requireBasket } from '../apps/rfid/baskets.ts';
import { rfidComponent } from '../apps/rfid/component.ts';
import { more } from './jobs.ts';
import { collect, examples, group, type PageOptions, withPage } from './options.ts';
import { show } from './output/print.ts';
import { facts } from './output/table.ts';
import { fullTime } from './output/time.ts';
import { withTallyman } from './session.ts';

export function addRfid(program: Command): void {
  const rfid = group(program, 'rfid', 'baskets that carry tags: where they are, and where they went');
  const baskets = group(rfid, 'baskets', 'one basket a tag');

  withPage(baskets.command('show'))
    .description('where a basket is, and its way there as a time line')
    .argument('<epc>', 'its tag: 24 hexadecimal digits')
    .option('-t, --tenant <id>', 'of this tenant', 'default')
    .addHelpText('after', examples(['rfid baskets show 3314257BF40C0E4000000190']))
    .action((epc: string, options: PageOptions & { tenant: string }) =>
      withTallyman(
        async ({ tallyman: { database }, now }) => {
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
        },
        [iotComponent, rfidComponent],
      ),
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
