import type { Command } from 'commander';
import type { Database, Queryable } from '../engine/database/database.ts';
import { TallymanError } from '../engine/errors.ts';
import { requirePublic } from '../engine/jobs/internal-kinds.ts';
import type { Priority } from '../engine/jobs/kind.ts';
import { usage } from '../host/cli/exit.ts';
import { examples, type JsonOption, withJson } from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import { payloadHelp, payloadText } from '../host/cli/payload.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { delayMs, type JobPlace, time, withPlace } from './job-options.ts';

interface EnqueueOptions extends JsonOption, JobPlace {
  readonly tenant?: string;
  readonly delay?: number;
  readonly at?: Date;
  readonly dedupeKey?: string;
  readonly correlation?: string;
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
  const command = withPlace(withInternal(withJson(jobs.command('enqueue'))));
  command
    .description('enqueue one job')
    .argument('<kind>', 'name of a kind that a worker has registered')
    .argument('[payload]', payloadHelp, payloadText)
    .option('-t, --tenant <id>', 'for this tenant (default: default)')
    .option('--delay <time>', 'not before this time has passed, such as 30s, 5m or 2d', delayMs)
    .option('--at <time>', 'not before this time, such as 2026-03-01T09:30:00Z', time)
    .option('--dedupe-key <key>', 'the same key again enqueues nothing')
    .option('--correlation <id>', "correlation id (default: the job's own id)")
    .addHelpText(
      'after',
      examples([
        `jobs enqueue label.print '{"sku": "P-1"}' --tenant acme`,
        'jobs enqueue report @payload.json --queue slow --priority 3 --delay 2h',
        'jobs enqueue pick - --lane dock-1 --dedupe-key order-7 < order.json',
      ]),
    )
    .action((kind: string, payload: string | undefined, options: EnqueueOptions) =>
      withTallyman(async ({ tallyman: { database }, made }) => {
        if (options.delay !== undefined && options.at !== undefined)
          throw usage('give --delay or --at, not both');
        if (!options.internal) await requirePublicKind(database, kind);
        const job = await enqueue(database, kind, payload ?? '{}', options);
        if (!job.existing) made(job.id);
        show(options.json, job, () =>
          job.existing
            ? `job ${job.id} has the dedupe key "${options.dedupeKey}" already; nothing is enqueued`
            : `job ${job.id} is enqueued`,
        );
      }),
    );
}

async function enqueue(
  database: Database,
  kind: string,
  payload: string,
  options: EnqueueOptions,
): Promise<{ id: string; existing: boolean }> {
  const { queue, priority, lane, maxAttempts, delay, at, dedupeKey, correlation, tenant } = options;
  const rest: { readonly priority?: Priority | undefined } & Readonly<Record<string, unknown>> = {
    kind,
    queue,
    priority,
    lane,
    max_attempts: maxAttempts,
    delay: delay === undefined ? undefined : `${delay} milliseconds`,
    scheduled_at: at,
    dedupe_key: dedupeKey,
  };
  // The payload is put in as it was written.
  const job = `${JSON.stringify(rest).slice(0, -1)},"payload":${payload}}`;
  const { rows } = await database.query<{ id: string; existing: boolean }>(
    `select id, existing from tallyman.enqueue_many($1::json, tenant_id => $2, correlation_id => $3)`,
    [`[${job}]`, tenant ?? 'default', correlation ?? null],
  );
  return rows[0] as { id: string; existing: boolean };
}
