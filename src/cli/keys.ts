import { type Command, InvalidArgumentError } from 'commander';
import { given } from '../given.ts';
import { accessOf } from '../host/app.ts';
import { examples, group, type JsonOption, oneOf, withJson } from '../host/cli/options.ts';
import { complain, print, show } from '../host/cli/output/print.ts';
import { table } from '../host/cli/output/table.ts';
import { paintState, terminalWidth } from '../host/cli/output/terminal.ts';
import { relativeTime } from '../host/cli/output/time.ts';
import type { CommandFrame, Session } from '../host/cli/session.ts';
import { loadSecretBox } from '../host/process/secrets.ts';
import { type Role, roles } from '../host/roles.ts';
import { type ApiKey, ApiKeys } from '../server/access/keys.ts';
import { serverComponent } from '../server/component.ts';
import { keyJson, pageJson } from '../server/routes/json.ts';

interface CreateOptions extends JsonOption {
  readonly name: string;
  readonly role: Role;
  readonly access?: string;
  readonly tenant: string;
  readonly expires?: Date;
}

export function addKeys(program: Command, { withTallyman, apps }: CommandFrame): void {
  const access = accessOf(apps).map(({ name }) => name);
  const withServer = <T>(work: (session: Session) => Promise<T>): Promise<T> =>
    withTallyman(work, [serverComponent]);
  const keys = group(program, 'keys', 'API keys: who may ask the server for what');

  withJson(keys.command('create'))
    .description('a new key, shown this once')
    .requiredOption('--name <name>', 'what it is for')
    .requiredOption('--role <role>', roles.join(', '), oneOf(roles))
    .option('--access <name>', `what a guest may see: ${access.join(', ')}`, oneOf(access))
    .option('-t, --tenant <id>', 'whose key it is', 'default')
    .option('--expires <time>', 'when it ends, such as 2027-01-01 or 2027-01-01T12:00:00Z', time)
    .addHelpText(
      'after',
      examples([
        'keys create --name ops --role admin',
        'keys create --name dock-7 --role producer --tenant acme',
        'keys create --name "market surveillance" --role guest --access passports.authority',
      ]),
    )
    .action((options: CreateOptions) =>
      withServer(async (session) => {
        const { name, role, access, tenant: tenantId, expires: expiresAt } = options;
        const { key, apiKey } = await (await keysOf(session)).create({
          tenantId,
          name,
          role,
          ...given({ access, expiresAt }),
        });
        session.made(apiKey.id);
        if (options.json) return show(true, { ...keyJson(apiKey), key }, () => '');
        complain(`Key ${apiKey.id} (${role} of "${tenantId}"). It is not shown again:`);
        print(key);
      }),
    );

  withJson(keys.command('list'))
    .description('keys, newest first, without their secrets')
    .option('-t, --tenant <id>', 'of this tenant')
    .addHelpText('after', examples(['keys list', 'keys list --tenant acme --json']))
    .action((options: JsonOption & { tenant?: string }) =>
      withServer(async (session) => {
        const items = await (await keysOf(session)).list(options.tenant);
        show(options.json, pageJson({ items, nextCursor: null }, keyJson), () =>
          keysTable(items, session.now),
        );
      }),
    );

  keys
    .command('revoke')
    .description('revoke a key; it stops working at once')
    .argument('<id>', 'id of the key, as in `keys list`')
    .addHelpText('after', examples(['keys revoke k3v9x2m4q8zt']))
    .action((id: string) =>
      withServer(async (session) => {
        await (await keysOf(session)).revoke(id);
        print(`key ${id} is revoked`);
      }),
    );
}

const keysOf = async ({ tallyman, config }: Session): Promise<ApiKeys> =>
  new ApiKeys(tallyman.database, await loadSecretBox(config));

function time(text: string): Date {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) throw new InvalidArgumentError('Expected a date such as 2027-01-01.');
  return date;
}

function keysTable(keys: readonly ApiKey[], now: Date): string {
  if (keys.length === 0) return 'No keys. Without any the server listens on loopback only.';
  const state = (key: ApiKey): string =>
    key.revokedAt ? 'revoked' : key.expiresAt && key.expiresAt <= now ? 'expired' : 'active';
  return table<ApiKey>(
    [
      { title: 'KEY', value: (key) => key.id },
      { title: 'NAME', value: (key) => key.name, shrinkTo: 8 },
      { title: 'TENANT', value: (key) => key.tenantId, shrinkTo: 6 },
      { title: 'ROLE', value: (key) => key.access ?? key.role },
      { title: 'STATE', value: state, paint: (text, key) => paintState(text, state(key)) },
      { title: 'MADE', value: (key) => relativeTime(key.createdAt, now), leaveOut: 2 },
      {
        title: 'USED',
        value: (key) => (key.lastUsedAt ? relativeTime(key.lastUsedAt, now) : 'never'),
        leaveOut: 1,
      },
    ],
    keys,
    terminalWidth(),
  );
}
