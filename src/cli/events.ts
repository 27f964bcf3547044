import { type Command, InvalidArgumentError } from 'commander';
import { type EventType, payloadSchema } from '../events/catalogue.ts';
import { eventsComponent } from '../events/component.ts';
import { Events } from '../events/events.ts';
import type { DomainEvent } from '../events/read.ts';
import { given } from '../given.ts';
import { catalogueOf } from '../host/catalogue.ts';
import { examples, group, type JsonOption, wholeNumber, withJson } from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import { table } from '../host/cli/output/table.ts';
import { terminalWidth } from '../host/cli/output/terminal.ts';
import { relativeTime } from '../host/cli/output/time.ts';
import type { CommandFrame, Session } from '../host/cli/session.ts';

interface ListOptions extends JsonOption {
  readonly tenant?: string;
  readonly type?: string;
  readonly aggregate?: { readonly aggregateType: string; readonly aggregateId?: string };
  readonly after: string;
  readonly limit: number;
}

interface EmitOptions extends JsonOption {
  readonly tenant?: string;
  readonly payload: unknown;
  readonly id?: string;
}

export function addEvents(program: Command, { apps, withTallyman }: CommandFrame): void {
  const catalogue = catalogueOf(apps);
  const withEvents = <T>(work: (all: Events, session: Session) => Promise<T>): Promise<T> =>
    withTallyman(
      (session) => work(new Events(session.tallyman.database, { catalogue }), session),
      [eventsComponent],
    );
  const events = group(program, 'events', 'what happened: read it, or emit an event of your own');

  withJson(events.command('list'))
    .description('events, oldest first')
    .option('-t, --tenant <id>', 'of this tenant')
    .option('--type <type>', 'such as rfid.movement, or a prefix such as rfid.*')
    .option(
      '--aggregate <type[:id]>',
      'what it happened to, such as basket:3314257BF40C0E4000000190',
      aggregate,
    )
    .option('--after <cursor>', 'go on where the last page ended (its cursor)', '0')
    .option('-n, --limit <count>', 'how many at most', wholeNumber(1, 1000), 50)
    .addHelpText('after', examples(['events list --type job.dead_letter', 'events list --after 1200 --json']))
    .action((options: ListOptions) =>
      withEvents(async (all, { now }) => {
        const { tenant: tenantId, type, aggregate: where, after, limit } = options;
        const page = await all.list({ ...given({ tenantId, type }), ...where }, { after, limit });
        show(
          options.json,
          page,
          () => `${eventsTable(page.events, now)}\n\nGo on with --after ${page.cursor}`,
        );
      }),
    );

  withJson(events.command('types'))
    .description('every event that Tallyman emits; with --json also the JSON Schema of each payload')
    .addHelpText('after', examples(['events types', 'events types --json']))
    .action((options: JsonOption) => {
      const { types } = catalogue;
      const items = types.map((type) => ({ ...type, schema: payloadSchema(type) }));
      show(options.json, { items }, () => typesTable(types));
    });

  withJson(events.command('emit'))
    .description('emit an event; endpoints that subscribe to its type get it')
    .argument('<type>', 'such as pallet.moved')
    .argument('<aggregate>', 'what it happened to, such as pallet:P-1', aggregate)
    .option('-t, --tenant <id>', 'for this tenant (default: default)')
    .option('-p, --payload <json>', 'what else there is to say', json, {})
    .option('--id <id>', 'the same id again does nothing')
    .addHelpText('after', examples([`events emit pallet.moved pallet:P-1 --payload '{"bay": "B7"}'`]))
    .action((type: string, where: { aggregateType: string; aggregateId?: string }, options: EmitOptions) =>
      withEvents(async (all) => {
        const { aggregateType, aggregateId = '' } = where;
        const { payload, tenant: tenantId, id } = options;
        const emitted = await all.emit({
          type,
          aggregateType,
          aggregateId,
          payload,
          ...given({ tenantId, id }),
        });
        show(options.json, emitted, () =>
          emitted.existing
            ? `there is an event ${emitted.eventId} already; nothing was done`
            : `event ${emitted.eventId} is emitted`,
        );
      }),
    );
}

function eventsTable(events: readonly DomainEvent[], now: Date): string {
  if (events.length === 0) return 'No events.';
  return table<DomainEvent>(
    [
      { title: 'EVENT', value: (event) => event.id, shrinkTo: 12 },
      { title: 'TYPE', value: (event) => event.type, shrinkTo: 12 },
      { title: 'OF', value: (event) => `${event.aggregateType}:${event.aggregateId}`, shrinkTo: 12 },
      { title: 'TENANT', value: (event) => event.tenantId, shrinkTo: 6, leaveOut: 1 },
      { title: 'WHEN', value: (event) => relativeTime(event.occurredAt, now) },
      { title: 'PAYLOAD', value: (event) => JSON.stringify(event.payload), shrinkTo: 16, leaveOut: 2 },
    ],
    events,
    terminalWidth(),
  );
}

const typesTable = (types: readonly EventType[]): string =>
  table<EventType>(
    [
      { title: 'TYPE', value: ({ type }) => type },
      { title: 'OF', value: ({ aggregateType }) => aggregateType },
      { title: 'WHEN', value: ({ summary }) => summary, shrinkTo: 20 },
    ],
    types,
    terminalWidth(),
  );

function aggregate(text: string): { aggregateType: string; aggregateId?: string } {
  const [aggregateType = '', ...rest] = text.split(':');
  if (aggregateType === '') throw new InvalidArgumentError('Expected a type and an id such as pallet:P-1.');
  return { aggregateType, ...(rest.length > 0 && { aggregateId: rest.join(':') }) };
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new InvalidArgumentError(`Expected JSON such as '{"bay": "B7"}'.`);
  }
}
