import type { Command } from 'commander';
import { examples, group, type JsonOption, withJson } from '../host/cli/options.ts';
import { complain, show } from '../host/cli/output/print.ts';
import type { CommandFrame, Session } from '../host/cli/session.ts';
import { componentsOf } from '../host/components.ts';
import { loadSecretBox } from '../host/process/secrets.ts';
import type { SecretBox } from '../secrets/box.ts';
import { countOthers, reseal, type SealedColumn } from '../secrets/reseal.ts';
import { ApiKeys } from '../server/access/keys.ts';
import { sealedAnswers } from '../server/http/idempotency.ts';

export function addSecrets(program: Command, { withTallyman, apps }: CommandFrame): void {
  const columns = [sealedAnswers, ...apps.flatMap(({ sealed }) => sealed ?? [])];
  const secrets = group(program, 'secrets', 'what is kept sealed under the master secret (secrets.key)');
  const withBox = <T>(work: (session: Session, box: SecretBox) => Promise<T>): Promise<T> =>
    withTallyman(async (session) => work(session, await loadSecretBox(session.config)), componentsOf(apps));

  withJson(secrets.command('status'))
    .description(
      'which master secrets are configured, and how much depends on those that are not the current one',
    )
    .addHelpText('after', examples(['secrets status', 'secrets status --json']))
    .action((options: JsonOption) =>
      withBox(async (session, box) => {
        const standing = await standingOf(session, box, columns);
        show(options.json, standing, () => summaryOf(standing));
      }),
    );

  withJson(secrets.command('rotate'))
    .description(
      'seal everything anew under secrets.key, while servers run; the old one is in secrets.otherKeys',
    )
    .addHelpText('after', examples(['secrets rotate', 'secrets rotate --json']))
    .action((options: JsonOption) =>
      withBox(async (session, box) => {
        for (const column of columns) {
          const resealed = await reseal(session.tallyman.database, box, column, (rows) => {
            if (!options.json) complain(`${column.table}: ${rows} sealed anew …`);
          });
          if (!options.json && resealed > 0) complain(`${column.table}: done, ${resealed} sealed anew`);
        }
        const standing = await standingOf(session, box, columns);
        show(options.json, standing, () => summaryOf(standing));
      }),
    );
}

interface Standing {
  /** Ids; the first one seals. */
  readonly keys: readonly string[];
  /** Rows that are sealed under another one than the first, by table. */
  readonly sealed_under_others: Readonly<Record<string, number>>;
  /** API keys that nobody has used since the master secret was changed. */
  readonly api_keys_under_others: number;
}

async function standingOf(
  { tallyman: { database } }: Session,
  box: SecretBox,
  columns: readonly SealedColumn[],
): Promise<Standing> {
  const counts = new Map<string, number>();
  const hasOthers = box.keyIds.length > 1;
  for (const column of hasOthers ? columns : [])
    counts.set(column.table, (counts.get(column.table) ?? 0) + (await countOthers(database, box, column)));
  return {
    keys: box.keyIds,
    sealed_under_others: Object.fromEntries([...counts].filter(([, rows]) => rows > 0)),
    api_keys_under_others: hasOthers ? await new ApiKeys(database, box).underOthers() : 0,
  };
}

function summaryOf({ keys, sealed_under_others, api_keys_under_others: apiKeys }: Standing): string {
  const [current, ...others] = keys;
  const rows = Object.entries(sealed_under_others).map(
    ([table, count]) => `  ${table}: ${count} to be sealed anew`,
  );
  return [
    `Master secret: ${current}${others.length > 0 ? `; others: ${others.join(', ')}` : ''}`,
    ...rows,
    ...(apiKeys > 0
      ? [
          `  ${apiKeys} API keys were not used since the change. Each is taken over at its next use; without the old secret they are lost.`,
        ]
      : []),
    ...(others.length > 0 && rows.length === 0 && apiKeys === 0
      ? ['Nothing depends on the others: take them out of secrets.otherKeys.']
      : []),
  ].join('\n');
}
