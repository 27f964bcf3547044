import { type Command, InvalidArgumentError } from 'commander';
import type { Queryable } from '../engine/database/database.ts';
import { TallymanError } from '../engine/errors.ts';
import { requirePublic } from '../engine/jobs/internal-kinds.ts';
import { given } from '../given.ts';
import { examples, type JsonOption, withJson } from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import type { CommandFrame } from '../host/cli/session.ts';

interface EnqueueOptions extends JsonOption {
  readonly tenant?: string;
  readonly lane?: string;
  readonly dedupeKey?: string;
  readonly internal?: boolean;
}

export const withInternal = (command: Command): Command =>
  command.option(
    '--internal',
    'also allow a kind that is not public; you must make sure that its payload is valid',
  );

/** Adds to the error how to do it anyway, if that is possible. */
export async function requirePublicKind(on: Queryable, kind: string): Promise<void> {
  try {
    await requirePublic(on, new Map(), kind);
  } catch (error) {
    if (!(error instanceof TallymanError) || error.code !== 'INTERNAL_KIND') throw error;
    throw new TallymanError(
      error.code,
      `${error.message} Or use --internal, and make sure that the payload is valid.`,
    );
  }
}

/** `jobs enqueue`: one job, of a public kind unless `--internal` is given. */
export function addEnqueue(jobs: Command, { withTallyman }: CommandFrame): void {
  withInternal(withJson(jobs.command('enqueue')))
    .description('enqueue one job')
    .argument('<kind>', 'name of a kind that a worker has registered')
    .argument('[payload]', 'JSON (default: {})', json)
    .option('-t, --tenant <id>', 'for this tenant (default: default)')
    .option('-l, --lane <key>', 'into this lane')
    .option('--dedupe-key <key>', 'the same key again enqueues nothing')
    .addHelpText('after', examples([`jobs enqueue label.print '{"sku": "P-1"}' --tenant acme`]))
    .action((kind: string, payload: string | undefined, options: EnqueueOptions) =>
      withTallyman(async ({ tallyman: { database } }) => {
        if (!options.internal) await requirePublicKind(database, kind);
        const { rows } = await database.query<{ id: string }>(
          `select tallyman.enqueue(kind => $1, payload => $2, tenant_id => $3, lane => $4, dedupe_key => $5) as id`,
          [kind, payload ?? '{}', options.tenant ?? 'default', options.lane, options.dedupeKey],
        );
        const [job] = rows;
        show(options.json, given({ id: job?.id }), () => `job ${job?.id} is enqueued`);
      }),
    );
}

/** JSON as it was typed: numbers of any size keep all digits. */
export function json(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    throw new InvalidArgumentError('Expected JSON, such as \'{"sku": "P-1"}\'.');
  }
}
