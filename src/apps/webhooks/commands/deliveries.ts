import { type Command, InvalidArgumentError } from 'commander';
import { TallymanError } from '../../../engine/errors.ts';
import { given } from '../../../given.ts';
import { forEachId } from '../../../host/cli/each.ts';
import { usage } from '../../../host/cli/exit.ts';
import {
  collect,
  examples,
  type JsonOption,
  more,
  oneOf,
  type PageOptions,
  withJson,
  withPage,
} from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { Progress } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import { type DeliveryState, deliveryStates } from '../deliveries.ts';
import { attemptPages, attemptsTable, deliveriesTable } from '../pages.ts';
import type { Webhooks } from '../webhooks.ts';
import { find, type TenantOption, type WithWebhooks, withId, withTenant } from './frame.ts';

interface RedeliverOptions extends TenantOption, JsonOption {
  readonly endpoint?: string;
  readonly from?: Date;
  readonly to?: Date;
  readonly all?: boolean;
}

interface DeliveriesOptions extends TenantOption, PageOptions {
  readonly endpoint?: string;
  readonly event?: string;
  readonly type?: string;
  readonly state?: DeliveryState;
  readonly from?: Date;
  readonly to?: Date;
}

interface AttemptsOptions extends TenantOption, PageOptions {
  readonly endpoint?: string;
  readonly delivery?: string;
  readonly event?: string;
  readonly status?: 'SUCCEEDED' | 'FAILED';
}

/** What is sent, and what became of it. */
export function addDeliveryCommands(webhooks: Command, withWebhooks: WithWebhooks): void {
  withId(webhooks.command('ping'))
    .description('send a webhook.ping, the way that every delivery goes')
    .addHelpText('after', examples(['webhooks ping 3']))
    .action((id: string, options: TenantOption & JsonOption) =>
      withWebhooks({}, async (all) => {
        await find(all, id, options);
        const sent = await all.ping(id);
        const { sentJson } = await import('../shapes.ts');
        show(options.json, sentJson(sent), () => `a ping is on its way; ${howItWent(sent.deliveryId)}`);
      }),
    );

  withTenant(withJson(webhooks.command('redeliver')))
    .description('send again: deliveries by id, or the events of a time range to an endpoint')
    .argument('[delivery...]', 'delivery ids')
    .option('--endpoint <id>', 'a range: to this endpoint')
    .option('--from <time>', 'a range: events written from here on, such as 2026-03-01T12:00:00Z', time)
    .option('--to <time>', 'a range: up to here (default: now)', time)
    .option('--all', 'a range: also what has been delivered or is on its way')
    .addHelpText(
      'after',
      examples([
        'webhooks redeliver 0b5e7e1c-5a3e-4b57-9d0b-0e6f0e7f3a10',
        'webhooks redeliver --endpoint 3 --from 2026-03-01T12:00:00Z',
      ]),
    )
    .action((ids: string[], options: RedeliverOptions) => {
      const ranged = isRange(ids, options);
      return withWebhooks({}, (all) => (ranged ? overRange(all, options) : each(all, ids, options)));
    });

  withTenant(withPage(webhooks.command('deliveries')))
    .description(
      'one line for each event and endpoint, newest first: its state, and when it is attempted next',
    )
    .option('--endpoint <id>', 'to this endpoint')
    .option('--event <id>', 'of this event')
    .option('--type <type>', 'of events of this type')
    .option('--state <state>', 'pending, delivered or failed', oneOf(deliveryStates))
    .option('--from <time>', 'made from here on, such as 2026-03-01T12:00:00Z', time)
    .option('--to <time>', 'made before this time', time)
    .addHelpText(
      'after',
      examples(['webhooks deliveries --endpoint 3 --state failed', 'webhooks deliveries --json']),
    )
    .action((options: DeliveriesOptions) =>
      withWebhooks({}, async (all, { now }) => {
        const { endpoint: endpointId, event: eventId, type: eventType, state, from, to } = options;
        const filter = given({
          tenantId: options.tenant,
          endpointId,
          eventId,
          eventType,
          state,
          from,
          to,
        });
        const page = await collect(options, (at) => all.deliveries(filter, at));
        const { deliveryJson } = await import('../shapes.ts');
        const json = { items: page.items.map(deliveryJson), next_cursor: page.nextCursor };
        show(options.json, json, () => deliveriesTable(page.items, now) + more(page.nextCursor));
      }),
    );

  withTenant(withPage(webhooks.command('attempts')))
    .description('one line for each request that was sent, newest first')
    .option('--endpoint <id>', 'to this endpoint')
    .option('--delivery <id>', 'of this delivery; with what the receiver answered')
    .option('--event <id>', 'of this event')
    .option('--status <status>', 'succeeded or failed', oneOf(['SUCCEEDED', 'FAILED']))
    .addHelpText(
      'after',
      examples(['webhooks attempts --endpoint 3 --status failed', 'webhooks attempts --json']),
    )
    .action((options: AttemptsOptions) =>
      withWebhooks({}, async (all, { now }) => {
        const { endpoint: endpointId, delivery: deliveryId, event: eventId, status } = options;
        const filter = given({ tenantId: options.tenant, endpointId, deliveryId, eventId, status });
        const page = await collect(options, (at) => all.attempts(filter, at));
        const shown = deliveryId === undefined ? attemptsTable : attemptPages;
        const { attemptJson } = await import('../shapes.ts');
        const json = { items: page.items.map(attemptJson), next_cursor: page.nextCursor };
        show(options.json, json, () => shown(page.items, now) + more(page.nextCursor));
      }),
    );
}

function isRange(ids: readonly string[], { endpoint, from, to, all }: RedeliverOptions): boolean {
  const ranged = endpoint !== undefined || from !== undefined || to !== undefined || all === true;
  if (ids.length > 0 && ranged) throw usage('give delivery ids, or --endpoint with --from, not both');
  if (ids.length === 0 && (endpoint === undefined || from === undefined))
    throw usage('name delivery ids, or a range with --endpoint and --from');
  return ranged;
}

async function overRange(all: Webhooks, options: RedeliverOptions): Promise<void> {
  const { endpoint = '', from = new Date(0), to } = options;
  await find(all, endpoint, options);
  const progress = new Progress('redelivering');
  const done = await all
    .redeliverRange({
      endpointId: endpoint,
      from,
      ...(to && { to }),
      onlyFailed: options.all !== true,
      onProgress: (n) => progress.show(n),
    })
    .finally(() => progress.end());
  show(options.json, { redelivered: done }, () => `${count(done, 'event')} sent again.`);
}

async function each(all: Webhooks, ids: readonly string[], options: RedeliverOptions): Promise<void> {
  const again = new Map<string, string>();
  await forEachId(
    ids,
    {
      ...(options.json && { json: true }),
      done: 'redelivered',
      say: (id) => `delivery ${id} is sent again; ${howItWent(again.get(id) ?? '')}`,
    },
    async (id) => {
      const before = await all.delivery(id);
      if (!before || (options.tenant !== undefined && before.tenantId !== options.tenant))
        throw new TallymanError('NOT_FOUND', `there is no delivery ${id}`);
      again.set(id, (await all.redeliver(id)).deliveryId);
    },
  );
}

const howItWent = (deliveryId: string): string => `see: tallyman webhooks attempts --delivery ${deliveryId}`;

function time(text: string): Date {
  const at = new Date(text);
  if (Number.isNaN(at.getTime()))
    throw new InvalidArgumentError('Expected a time such as 2026-03-01T12:00:00Z.');
  return at;
}
