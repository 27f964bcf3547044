import type { Command } from 'commander';
import { examples } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { requireVersion } from '../store/versions.ts';
import { requestActivation, revokeVersion } from '../write/version-steps.ts';
import { requireUuid, type TenantOption, type Tools, withPassports, withTenant } from './tools.ts';

/** `tallyman passports activate|revoke`: the steps of a version that a person decides on. */
export function addVersions(passports: Command, frame: CommandFrame): void {
  withTenant(passports.command('activate'))
    .description('let a signed version count; the one that counted until now is superseded')
    .argument('<version>', 'its id')
    .addHelpText('after', examples(['passports activate 7b0c6d4e-…', 'passports activate 7b0c6d4e-… --json']))
    .action((name: string, options: TenantOption) =>
      withPassports(frame, options, async (tools) => {
        const id = requireUuid(name, 'version');
        await tools.change((work) => requestActivation(work, id));
        await tools.settle('activating');
        await tell(tools, id, options);
      }),
    );

  withTenant(passports.command('revoke'))
    .description('revoke a version for good; its code still names it, and readers are told')
    .argument('<version>', 'its id')
    .requiredOption('--reason <text>', 'why; readers see it')
    .addHelpText('after', examples(['passports revoke 7b0c6d4e-… --reason "wrong footprint"']))
    .action((name: string, options: TenantOption & { readonly reason: string }) =>
      withPassports(frame, options, async (tools) => {
        const id = requireUuid(name, 'version');
        await tools.change((work) => revokeVersion(work, id, options.reason));
        await tell(tools, id, options);
      }),
    );
}

async function tell({ on }: Tools, id: string, { json }: TenantOption): Promise<void> {
  const version = await requireVersion(on, id);
  const { versionJson } = await import('../routes/versions.ts');
  show(
    json,
    versionJson(version),
    () => `version ${id}: ${version.state}${version.reason === null ? '' : ` (${version.reason})`}`,
  );
}
