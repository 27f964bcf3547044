import type { Command } from 'commander';
import { given } from '../../../given.ts';
import { exitCodes, usage } from '../../../host/cli/exit.ts';
import {
  collect,
  examples,
  type JsonOption,
  more,
  type PageOptions,
  wholeNumber,
  withJson,
  withPage,
} from '../../../host/cli/options.ts';
import { complain, print, show } from '../../../host/cli/output/print.ts';
import { confirm } from '../../../host/cli/output/terminal.ts';
import { endpointPage, endpointsTable } from '../pages.ts';
import { find, type TenantOption, type WithWebhooks, withId, withTenant } from './frame.ts';
import {
  type SecretOption,
  type SettingOptions,
  secretFrom,
  settingsFrom,
  withSettings,
} from './settings.ts';

/** What is set up, and how it changes. */
export function addEndpointCommands(webhooks: Command, withWebhooks: WithWebhooks): void {
  withSettings(withTenant(withJson(webhooks.command('add'))))
    .description('set up an endpoint; its secret is shown once')
    .argument('<url>', 'where deliveries are posted to')
    .option(
      '--secret <text>',
      'a secret of your own, 8 to 256 bytes; - reads it from stdin (default: one is made)',
    )
    .addHelpText(
      'after',
      examples([
        'webhooks add https://example.com/hooks --event pallet.* job.dead_letter',
        'webhooks add https://example.com/hooks --ordered --long-retries --json',
        `webhooks add https://example.com/hooks --filter '[{"path": "to.zone", "equals": "dock-3"}]'`,
        `webhooks add https://example.com/hooks --header 'Authorization: Bearer 123' --ed25519`,
      ]),
    )
    .action((url: string, options: SettingOptions & TenantOption & JsonOption & SecretOption) =>
      withWebhooks({ secrets: true }, async (all, { now }) => {
        const added = await all.add({
          url,
          ...settingsFrom(options),
          ...given({ tenantId: options.tenant, secret: await secretFrom(options) }),
        });
        const { endpointJson } = await import('../shapes.ts');
        show(
          options.json,
          { ...endpointJson(added.endpoint), secret: added.secret },
          () => `${endpointPage(added.endpoint, now)}\n\n${secretOnce(added.secret)}`,
        );
      }),
    );

  withSettings(withId(webhooks.command('change')))
    .description('change an endpoint; what is not named stays')
    .option('--url <url>', 'where deliveries are posted to')
    .option('--no-filter', 'every event that it subscribes to')
    .option('--no-header', 'no headers of its own')
    .option('--no-ed25519', 'sign with the secret alone; forgets the key pair')
    .option('--no-ordered', 'in any order')
    .addHelpText(
      'after',
      examples(['webhooks change 3 --event pallet.* --timeout 5000', 'webhooks change 3 --no-filter']),
    )
    .action((id: string, options: SettingOptions & TenantOption & JsonOption & { url?: string }) =>
      withWebhooks({ secrets: true }, async (all, { now }) => {
        await find(all, id, options);
        const endpoint = await all.update(id, { ...settingsFrom(options), ...given({ url: options.url }) });
        const { endpointJson } = await import('../shapes.ts');
        show(options.json, endpointJson(endpoint), () => endpointPage(endpoint, now));
      }),
    );

  withTenant(withPage(webhooks.command('list')))
    .description('endpoints, newest first')
    .addHelpText('after', examples(['webhooks list', 'webhooks list --tenant acme --json']))
    .action((options: PageOptions & TenantOption) =>
      withWebhooks({}, async (all) => {
        const filter = given({ tenantId: options.tenant });
        const page = await collect(options, (at) => all.list(filter, at));
        const { endpointJson } = await import('../shapes.ts');
        const shown = { items: page.items.map(endpointJson), next_cursor: page.nextCursor };
        show(options.json, shown, () => endpointsTable(page.items) + more(page.nextCursor));
      }),
    );

  withId(webhooks.command('show'))
    .description('everything about one endpoint, but for its secret')
    .addHelpText('after', examples(['webhooks show 3']))
    .action((id: string, options: TenantOption & JsonOption) =>
      withWebhooks({}, async (all, { now }) => {
        const endpoint = await find(all, id, options);
        const { endpointJson } = await import('../shapes.ts');
        show(options.json, endpointJson(endpoint), () => endpointPage(endpoint, now));
      }),
    );

  withId(webhooks.command('rotate'))
    .description('a new secret, shown once, or a new key pair; the old one signs as well for a time')
    .option('--keep-old <hours>', 'how long the old one stays valid', wholeNumber(0, 8760), 24)
    .option(
      '--secret <text>',
      'a secret of your own, 8 to 256 bytes; - reads it from stdin (default: one is made)',
    )
    .option('--key', 'the key pair of Ed25519 instead of the secret')
    .addHelpText(
      'after',
      examples(['webhooks rotate 3', 'webhooks rotate 3 --keep-old 0', 'webhooks rotate 3 --key']),
    )
    .action(
      (
        id: string,
        options: TenantOption & JsonOption & SecretOption & { keepOld: number; key?: boolean },
      ) => {
        if (options.key && options.secret !== undefined)
          throw usage('a key pair is made here: give --key or --secret, not both');
        return withWebhooks({ secrets: true }, async (all) => {
          await find(all, id, options);
          const keep = { keepOldForMs: options.keepOld * 3_600_000 };
          if (options.key) {
            const publicKey = await all.rotateKey(id, keep);
            show(options.json, { id, public_key: publicKey }, () => `Its new public key:\n  ${publicKey}`);
            return;
          }
          const secret = await all.rotate(id, { ...keep, ...given({ secret: await secretFrom(options) }) });
          show(options.json, { id, secret }, () => secretOnce(secret));
        });
      },
    );

  withId(webhooks.command('enable'))
    .description('gets events again; deliveries that wait, also after failures, go out now')
    .addHelpText('after', examples(['webhooks enable 3']))
    .action((id: string, options: TenantOption & JsonOption) =>
      withWebhooks({}, async (all) => {
        await find(all, id, options);
        const endpoint = await all.enable(id);
        const { endpointJson } = await import('../shapes.ts');
        show(options.json, endpointJson(endpoint), () => `webhook endpoint ${id} is enabled`);
      }),
    );

  withId(webhooks.command('disable'))
    .description(
      'gets no more events; deliveries that are under way wait until it is enabled, for up to 3 days',
    )
    .option('--reason <text>', 'kept with it')
    .addHelpText('after', examples(['webhooks disable 3 --reason "moves to another host"']))
    .action((id: string, options: TenantOption & JsonOption & { reason?: string }) =>
      withWebhooks({}, async (all) => {
        await find(all, id, options);
        const endpoint = await all.disable(id, options.reason);
        const { endpointJson } = await import('../shapes.ts');
        show(options.json, endpointJson(endpoint), () => `webhook endpoint ${id} is disabled`);
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

const secretOnce = (secret: string): string =>
  `Its secret, shown this once. Give it to the receiver, which checks signatures with it:\n  ${secret}`;
