import { type Command, InvalidArgumentError } from 'commander';
import { TallymanError } from '../engine/errors.ts';
import type { EventType } from '../events/catalogue.ts';
import { eventsComponent } from '../events/component.ts';
import { Events } from '../events/events.ts';
import type { DomainEvent } from '../events/read.ts';
import { given } from '../given.ts';
import { catalogueOf } from '../host/catalogue.ts';
import { examples, group, type JsonOption, wholeNumber, withJson } from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import { facts, table } from '../host/cli/output/table.ts';
import { terminalWidth } from '../host/cli/output/terminal.ts';
import { fullTime, relativeTime } from '../host/cli/output/time.ts';
import { payloadHelp, payloadText } from '../host/cli/payload.ts';
import type { CommandFrame, Session } from '../host/cli/session.ts';
import { eventJson } from '../server/routes/events.ts';
import { eventTypeJson, pageJson } from '../server/routes/json.ts';

interface ListOptions extends JsonOption {
  readonly tenant?: string;
  readonly type?: string;
  readonly aggregate?: { readonly aggregateType: string; readonly aggregateId?: string };
  readonly after: string;
  readonly limit: number;
}

interface EmitOptions extends JsonOption {
  readonly tenant?: string;
  readonly payload?: string;
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
          pageJson({ items: page.events, nextCursor: page.cursor }, eventJson),
          () => `${eventsTable(page.events, now)}\n\nGo on with --after ${page.cursor}`,
        );
      }),
    );

  withJson(events.command('show'))
    .description('one event, with its payload')
    .argument('<id>', 'such as evt_4711, or the id that its emitter gave')
    .option('-t, --tenant <id>', 'of this tenant')
    .addHelpText('after', examples(['events show evt_4711', 'events show move-1 --tenant acme --json']))
    .action((id: string, options: JsonOption & { tenant?: string }) =>
      withEvents(async (all, { now }) => {
        const event = await all.get(id, given({ tenantId: options.tenant }));
        if (!event) throw new TallymanError('NOT_FOUND', `there is no event ${id}`);
        show(options.json, eventJson(event), () => eventPage(event, now));
      }),
    );

  withJson(events.command('types'))
    .description('every event that Tallyman emits; with --json also the JSON Schema of each payload')
    .addHelpText('after', examples(['events types', 'events types --json']))
    .action((options: JsonOption) => {
      const { types } = catalogue;
      show(options.json, pageJson({ items: types, nextCursor: null }, eventTypeJson), () =>
        typesTable(types),
      );
    });

  withJson(events.command('emit'))
    .description('emit an event; endpoints that subscribe to its type get it')
    .argument('<type>', 'such as pallet.moved')
    .argument('<aggregate>', 'what it happened to, such as pallet:P-1', aggregate)
    .option('-t, --tenant <id>', 'for this tenant (default: default)')
    .option('-p, --payload <json>', `what else there is to say: ${payloadHelp}`, payloadText)
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
          payload: JSON.parse(payload ?? '{}'),
          ...given({ tenantId, id }),
        });
        const { eventId, existing } = emitted;
        show(options.json, { event_id: eventId, existing }, () =>
          emitted.existing
            ? `there is an event ${emitted.eventId} already; nothing was done`
            : `event ${emitted.eventId} is emitted`,
        );
      }),
    );
}

const eventPage = (event: DomainEvent, now: Date): string =>
  facts([
    ['event', event.id],
    ['type', event.type],
    ['of', `${event.aggregateType}:${event.aggregateId}`],
    ['tenant', event.tenantId],
    ['position', event.position],
    ['happened', fullTime(event.occurredAt, now)],
    ['written', fullTime(event.createdAt, now)],
    ['payload', JSON.stringify(event.payload)],
  ]);

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
