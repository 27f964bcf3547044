import { type Command, InvalidArgumentError } from 'commander';
import { TallymanError } from '../../engine/errors.ts';
import { given } from '../../given.ts';
import { settingsOf } from '../../host/app.ts';
import { forEachId } from '../../host/cli/each.ts';
import { exitCodes, usage } from '../../host/cli/exit.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  oneOf,
  type PageOptions,
  wholeNumber,
  withJson,
  withPage,
} from '../../host/cli/options.ts';
import { complain, print, show } from '../../host/cli/output/print.ts';
import { confirm, Progress } from '../../host/cli/output/terminal.ts';
import { count } from '../../host/cli/output/text.ts';
import type { CommandFrame, Session } from '../../host/cli/session.ts';
import { loadSecretBox } from '../../host/process/secrets.ts';
import type { SecretBox } from '../../secrets/box.ts';
import { webhooksKeys } from './config.ts';
import { addressPolicy } from './configured.ts';
import { type Endpoint, longRetryDelays } from './endpoints.ts';
import { attemptPages, attemptsTable, endpointPage, endpointsTable } from './pages.ts';
import { Webhooks } from './webhooks.ts';

interface TenantOption {
  readonly tenant?: string;
}

interface AddOptions extends TenantOption, JsonOption {
  readonly event?: string[];
  readonly description?: string;
  readonly ordered?: boolean;
  readonly timeout?: number;
  readonly attempts?: number;
  readonly retryDelays?: number[];
  readonly longRetries?: boolean;
}

interface RedeliverOptions extends TenantOption, JsonOption {
  readonly endpoint?: string;
  readonly from?: Date;
  readonly to?: Date;
  readonly all?: boolean;
}

interface DeliveriesOptions extends TenantOption, PageOptions {
  readonly endpoint?: string;
  readonly delivery?: string;
  readonly event?: string;
  readonly status?: 'SUCCEEDED' | 'FAILED';
}

const withTenant = (command: Command): Command => command.option('-t, --tenant <id>', 'of this tenant');
const withId = (command: Command): Command =>
  withTenant(withJson(command)).argument('<id>', 'id of the endpoint');

export function addWebhooks(program: Command, frame: CommandFrame): void {
  const withWebhooks = webhooksFrom(frame);
  const webhooks = group(program, 'webhooks', 'endpoints that get events, and their deliveries');

  withTenant(withJson(webhooks.command('add')))
    .description('set up an endpoint; its secret is shown once')
    .argument('<url>', 'where deliveries are posted to')
    .option('-e, --event <type...>', 'event types such as pallet.moved or pallet.* (default: all)')
    .option('-d, --description <text>', 'what it is for')
    .option('--ordered', 'events of one aggregate arrive one after another, in order')
    .option('--timeout <ms>', 'for a whole exchange (default: 30000)', wholeNumber(100, 300_000))
    .option('--attempts <count>', 'before a delivery becomes a dead letter (default: 5)', wholeNumber(1, 100))
    .option('--retry-delays <seconds>', 'waits between attempts, such as 5,300,1800', delays)
    .option('--long-retries', `the same as --retry-delays ${longRetryDelays.join(',')}`)
    .addHelpText(
      'after',
      examples([
        'webhooks add https://example.com/hooks --event pallet.* job.dead_letter',
        'webhooks add https://example.com/hooks --ordered --long-retries --json',
      ]),
    )
    .action((url: string, options: AddOptions) =>
      withWebhooks({ secrets: true }, async (all, { now }) => {
        const {
          event: eventTypes,
          description,
          ordered,
          timeout: timeoutMs,
          attempts: maxAttempts,
        } = options;
        const retryDelays = options.longRetries ? longRetryDelays : options.retryDelays;
        const added = await all.add({
          url,
          ...given({
            tenantId: options.tenant,
            eventTypes,
            description,
            ordered,
            timeoutMs,
            maxAttempts,
            retryDelays,
          }),
        });
        show(
          options.json,
          added,
          () => `${endpointPage(added.endpoint, now)}\n\n${secretOnce(added.secret)}`,
        );
      }),
    );

  withTenant(withPage(webhooks.command('list')))
    .description('endpoints, newest first')
    .addHelpText('after', examples(['webhooks list', 'webhooks list --tenant acme --json']))
    .action((options: PageOptions & TenantOption) =>
      withWebhooks({}, async (all) => {
        const filter = given({ tenantId: options.tenant });
        const page = await collect(options, (at) => all.list(filter, at));
        show(options.json, page, () => endpointsTable(page.items) + more(page.nextCursor));
      }),
    );

  withId(webhooks.command('show'))
    .description('everything about one endpoint, but for its secret')
    .addHelpText('after', examples(['webhooks show 3']))
    .action((id: string, options: TenantOption & JsonOption) =>
      withWebhooks({}, async (all, { now }) => {
        const endpoint = await find(all, id, options);
        show(options.json, endpoint, () => endpointPage(endpoint, now));
      }),
    );

  withId(webhooks.command('rotate'))
    .description('a new secret, shown once; the old one signs as well for a time')
    .option('--keep-old <hours>', 'how long the old secret stays valid', wholeNumber(0, 8760), 24)
    .addHelpText('after', examples(['webhooks rotate 3', 'webhooks rotate 3 --keep-old 0']))
    .action((id: string, options: TenantOption & JsonOption & { keepOld: number }) =>
      withWebhooks({ secrets: true }, async (all) => {
        await find(all, id, options);
        const secret = await all.rotate(id, { keepOldForMs: options.keepOld * 3_600_000 });
        show(options.json, { id, secret }, () => secretOnce(secret));
      }),
    );

  withId(webhooks.command('ping'))
    .description('send a webhook.ping, the way that every delivery goes')
    .addHelpText('after', examples(['webhooks ping 3']))
    .action((id: string, options: TenantOption & JsonOption) =>
      withWebhooks({}, async (all) => {
        await find(all, id, options);
        const sent = await all.ping(id);
        show(options.json, sent, () => `a ping is on its way; ${howItWent(sent.deliveryId)}`);
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
    .description('attempts, newest first')
    .option('--endpoint <id>', 'to this endpoint')
    .option('--delivery <id>', 'of this delivery; with what the receiver answered')
    .option('--event <id>', 'of this event')
    .option('--status <status>', 'succeeded or failed', oneOf(['SUCCEEDED', 'FAILED']))
    .addHelpText(
      'after',
      examples(['webhooks deliveries --endpoint 3 --status failed', 'webhooks deliveries --json']),
    )
    .action((options: DeliveriesOptions) =>
      withWebhooks({}, async (all, { now }) => {
        const {
          tenant: tenantId,
          endpoint: endpointId,
          delivery: deliveryId,
          event: eventId,
          status,
        } = options;
        const filter = given({ tenantId, endpointId, deliveryId, eventId, status });
        const page = await collect(options, (at) => all.deliveries(filter, at));
        const shown = deliveryId === undefined ? attemptsTable : attemptPages;
        show(options.json, page, () => shown(page.items, now) + more(page.nextCursor));
      }),
    );

  withId(webhooks.command('enable'))
    .description('gets events again; also ends the waiting of deliveries after failures')
    .addHelpText('after', examples(['webhooks enable 3']))
    .action((id: string, options: TenantOption & JsonOption) =>
      withWebhooks({}, async (all) => {
        await find(all, id, options);
        const endpoint = await all.enable(id);
        show(options.json, endpoint, () => `webhook endpoint ${id} is enabled`);
      }),
    );

  withId(webhooks.command('disable'))
    .description('gets no more events; deliveries that are under way end as failed')
    .option('--reason <text>', 'kept with it')
    .addHelpText('after', examples(['webhooks disable 3 --reason "moves to another host"']))
    .action((id: string, options: TenantOption & JsonOption & { reason?: string }) =>
      withWebhooks({}, async (all) => {
        await find(all, id, options);
        const endpoint = await all.disable(id, options.reason);
        show(options.json, endpoint, () => `webhook endpoint ${id} is disabled`);
      }),
    );

  withTenant(webhooks.command('remove'))
    .description('for good, with its secret and what is known about its deliveries')
    .argument('<id>', 'id of the endpoint')
    .option('-y, --yes', 'do not ask')
    .addHelpText('after', examples(['webhooks remove 3', 'webhooks remove 3 --yes']))
    .action((id: string, options: TenantOption & { yes?: boolean }) =>
      withWebhooks({}, async (all) => {
        const { url } = await find(all, id, options);
        if (!options.yes) {
          if (!process.stdin.isTTY)
            throw usage(`this removes ${url} for good; add --yes to do it without being asked`);
          if (!(await confirm(`Remove ${url} for good?`))) {
            complain('Nothing was done.');
            process.exitCode = exitCodes.failed;
            return;
          }
        }
        await all.remove(id);
        print(`webhook endpoint ${id} is removed`);
      }),
    );
}

/** Only commands that create or change a secret need the master secret. */
const webhooksFrom =
  ({ withTallyman }: CommandFrame) =>
  (
    { secrets = false }: { readonly secrets?: boolean },
    work: (webhooks: Webhooks, session: Session) => Promise<void>,
  ): Promise<void> =>
    withTallyman(async (session) => {
      const { tallyman, config } = session;
      const box: SecretBox | undefined = secrets ? await loadSecretBox(config) : undefined;
      const policy = addressPolicy(settingsOf(webhooksKeys, config));
      await work(new Webhooks(tallyman.database, { policy, ...(box && { box }) }), session);
    });

/** Treats an endpoint of another tenant as not found. */
async function find(all: Webhooks, id: string, { tenant }: TenantOption): Promise<Endpoint> {
  const endpoint = await all.get(id);
  if (!endpoint || (tenant !== undefined && endpoint.tenantId !== tenant))
    throw new TallymanError(
      'NOT_FOUND',
      `there is no webhook endpoint ${id}${tenant ? ` of tenant "${tenant}"` : ''}`,
    );
  return endpoint;
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

const howItWent = (deliveryId: string): string =>
  `see: tallyman webhooks deliveries --delivery ${deliveryId}`;
const secretOnce = (secret: string): string =>
  `Its secret, shown this once. Give it to the receiver, which checks signatures with it:\n  ${secret}`;

function delays(text: string): number[] {
  const seconds = text.split(',').map((part) => part.trim());
  if (!seconds.every((part) => /^[1-9]\d{0,5}$/.test(part)))
    throw new InvalidArgumentError('Expected seconds such as 5,300,1800.');
  return seconds.map(Number);
}

function time(text: string): Date {
  const at = new Date(text);
  if (Number.isNaN(at.getTime()))
    throw new InvalidArgumentError('Expected a time such as 2026-03-01T12:00:00Z.');
  return at;
}
