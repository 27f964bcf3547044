import { type Command, InvalidArgumentError } from 'commander';
import { usage } from '../../../host/cli/exit.ts';
import { examples, type JsonOption, wholeNumber, withJson } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { isSlug, slugOf } from '../domain/zones.ts';
import type { Paired, PairedZone } from '../pairing/pair.ts';
import { zonesGroup } from './frame.ts';

interface PairCommandOptions extends JsonOption {
  readonly folder: string;
  readonly url: string;
  readonly port: number;
  readonly trustDomain: string;
  readonly days: number;
}

export function addPair(program: Command): void {
  withJson(zonesGroup(program).command('pair'))
    .description(
      'make a development authority and certificates for two zones, and print their configurations',
    )
    .argument('<first>', 'the zone that connects, such as plant-a', zone)
    .argument('<second>', 'the zone that it connects to, such as enterprise', zone)
    .option('--folder <path>', 'where certificates, keys and configurations go', '.tallyman/zones')
    .option(
      '--url <address>',
      'of the second node, as the first one reaches it',
      address,
      'https://localhost:7444',
    )
    .option('--port <number>', 'that the first node listens on', wholeNumber(0, 65_535), 7443)
    .option('--trust-domain <name>', 'in the certificates', trustDomainName, 'tallyman.test')
    .option('--days <count>', 'how long certificates are valid', wholeNumber(1, 3650), 365)
    .addHelpText(
      'after',
      `${examples(['zones pair plant-a enterprise', 'zones pair plant-a enterprise --url https://boundary.example.com:7443'])}

The first node pushes its facts to the second one and pulls facts from it: all
connections go out of the first zone. Each zone needs a database of its own.
Certificates are made by the program openssl, and are for development: in
production let your own authority make them (docs/boundary.md).`,
    )
    .action(async (first: string, second: string, options: PairCommandOptions) => {
      if (first === second) throw usage(`two zones are needed, got "${first}" twice`);
      const { pairZones } = await import('../pairing/pair.ts');
      const { folder, url, port, trustDomain, days } = options;
      const paired = await pairZones({ first, second, folder, url, port, trustDomain, days });
      show(options.json, pairedJson(paired), () => pairedText(paired));
    });
}

const pairedJson = ({ authority, zones }: Paired) => ({
  authority,
  zones: zones.map(({ zone: name, configFile, config }) => ({ zone: name, config_file: configFile, config })),
});

const pairedText = ({ zones }: Paired): string =>
  [
    ...zones.map(zoneText),
    'Set DATABASE_URL to a database of its own for each. Then: tallyman zones status',
  ].join('\n\n');

const zoneText = ({ zone: name, configFile, config }: PairedZone): string =>
  [
    `${name}: tallyman --config ${configFile} serve --only boundary --migrate`,
    JSON.stringify(config, null, 2),
  ].join('\n\n');

function zone(text: string): string {
  if (isSlug(text)) return text;
  const slug = slugOf(text);
  throw new InvalidArgumentError(
    `Expected a slug${isSlug(slug) ? ` such as ${slug}` : ''}: lower-case letters, digits and single hyphens.`,
  );
}

function address(text: string): string {
  if (URL.canParse(text) && new URL(text).protocol === 'https:') return text;
  throw new InvalidArgumentError('Expected an address that begins with https://.');
}

function trustDomainName(text: string): string {
  if (/^[a-z0-9._-]{1,255}$/.test(text)) return text;
  throw new InvalidArgumentError('Expected lower-case letters, digits, ".", "-" and "_".');
}
