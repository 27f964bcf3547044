import type { Command } from 'commander';
import { examples, group, type JsonOption, withJson } from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import { table } from '../host/cli/output/table.ts';
import { terminalWidth } from '../host/cli/output/terminal.ts';
import { relativeTime } from '../host/cli/output/time.ts';
import type { CommandFrame, Session } from '../host/cli/session.ts';
import { type Tenant, Tenants } from '../server/access/tenants.ts';
import { serverComponent } from '../server/component.ts';
import { pageJson, tenantJson } from '../server/routes/json.ts';

export function addTenants(program: Command, { withTallyman }: CommandFrame): void {
  const withServer = <T>(work: (session: Session) => Promise<T>): Promise<T> =>
    withTallyman(work, [serverComponent]);
  const tenants = group(program, 'tenants', 'who shares this installation without seeing each other');

  withJson(tenants.command('create'))
    .description('a new tenant; make keys for it with `keys create --tenant`')
    .argument('<id>', 'small letters, digits, - and _')
    .option('--name <name>', 'what people call it (default: its id)')
    .addHelpText('after', examples(['tenants create acme --name "Acme Logistics"']))
    .action((id: string, options: JsonOption & { name?: string }) =>
      withServer(async ({ tallyman }) => {
        const tenant = await new Tenants(tallyman.database).create(id, options.name);
        show(options.json, tenantJson(tenant), () => `tenant "${tenant.id}" is made`);
      }),
    );

  withJson(tenants.command('list'))
    .description('all tenants')
    .addHelpText('after', examples(['tenants list --json']))
    .action((options: JsonOption) =>
      withServer(async ({ tallyman, now }) => {
        const items = await new Tenants(tallyman.database).list();
        show(options.json, pageJson({ items, nextCursor: null }, tenantJson), () =>
          table<Tenant>(
            [
              { title: 'TENANT', value: (tenant) => tenant.id },
              { title: 'NAME', value: (tenant) => tenant.name, shrinkTo: 10 },
              { title: 'SINCE', value: (tenant) => relativeTime(tenant.createdAt, now) },
            ],
            items,
            terminalWidth(),
          ),
        );
      }),
    );
}
