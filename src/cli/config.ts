import type { Command } from 'commander';
import { readConfig } from '../config/load.ts';
import { examples, type JsonOption, withJson } from '../host/cli/options.ts';
import { print, show } from '../host/cli/output/print.ts';
import { table } from '../host/cli/output/table.ts';
import { terminalWidth } from '../host/cli/output/terminal.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { configurationReference } from './config-reference.ts';

interface Setting {
  readonly key: string;
  readonly value: unknown;
  readonly source: string;
}

export function addConfig(program: Command, { configSchema }: CommandFrame): void {
  withJson(program.command('config'))
    .description('the configuration in effect, and where each value comes from; secrets are not shown')
    .option('--docs', 'the reference of all keys, as Markdown')
    .addHelpText('after', examples(['config', 'config --docs > docs/configuration.md']))
    .action((options: JsonOption & { docs?: boolean }) => {
      if (options.docs) {
        print(configurationReference(configSchema.keys).trimEnd());
        return;
      }
      const { config, sources } = readConfig(configSchema);
      const settings = Object.entries(configSchema.keys).map(([key, { secret }]): Setting => {
        return {
          key,
          value: secret ? withoutSecrets(config[key]) : config[key],
          source: (sources[key] ?? '').replace(/^its default$/, 'default'),
        };
      });
      show(options.json, { items: settings }, () =>
        table<Setting>(
          [
            { title: 'KEY', value: (setting) => setting.key },
            {
              title: 'VALUE',
              value: ({ value }) =>
                value === null
                  ? '(not set)'
                  : typeof value === 'object'
                    ? JSON.stringify(value)
                    : String(value),
              shrinkTo: 10,
            },
            { title: 'FROM', value: (setting) => setting.source, shrinkTo: 10 },
          ],
          settings,
          terminalWidth(),
        ),
      );
    });
}

/** The parts of an address that identify the server; no user and no parameters, which may contain keys. */
function withoutSecrets(value: unknown): string | null {
  if (value === null) return null;
  const text = String(value);
  if (!URL.canParse(text) || text.includes(',')) return '…';
  const { protocol, host, pathname, username, password } = new URL(text);
  return `${protocol}//${username || password ? '…@' : ''}${host}${pathname}`;
}
