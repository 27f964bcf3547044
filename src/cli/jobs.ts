import type { Command } from 'commander';
import { TallymanError } from '../engine/errors.ts';
import { type Job, type JobError, type JobStatus, jobStatuses } from '../engine/jobs/jobs.ts';
import { given } from '../given.ts';
import { forEachId } from '../host/cli/each.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  oneOf,
  type PageOptions,
  withJson,
  withPage,
} from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import { facts, table } from '../host/cli/output/table.ts';
import { paintState, terminalWidth } from '../host/cli/output/terminal.ts';
import { printableLines } from '../host/cli/output/text.ts';
import { fullTime, relativeTime } from '../host/cli/output/time.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { jobJson, pageJson } from '../server/routes/json.ts';
import { addEnqueue } from './enqueue.ts';

interface ListOptions extends PageOptions {
  readonly status?: JobStatus;
  readonly queue?: string;
  readonly kind?: string;
  readonly lane?: string;
  readonly tenant?: string;
  readonly correlation?: string;
}

export function addJobs(program: Command, frame: CommandFrame): void {
  const jobs = group(program, 'jobs', 'enqueue jobs, look at them, run them again, cancel them');

  withPage(jobs.command('list'))
    .description('jobs in any state, newest first')
    .option('-s, --status <status>', `one of ${jobStatuses.join(', ')}`, oneOf(jobStatuses))
    .option('-q, --queue <name>', 'of this queue')
    .option('-k, --kind <name>', 'of this kind')
    .option('-l, --lane <key>', 'of this lane')
    .option('-t, --tenant <id>', 'of this tenant')
    .option('--correlation <id>', 'with this correlation id')
    .addHelpText(
      'after',
      examples(['jobs list --status failed', 'jobs list --kind label.print -n 500 --json']),
    )
    .action((options: ListOptions) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const { status, queue, kind, lane, tenant: tenantId, correlation: correlationId } = options;
        const page = await collect(options, (at) =>
          tallyman.jobs.list(given({ status, queue, kind, lane, tenantId, correlationId }), at),
        );
        show(options.json, pageJson(page, jobJson), () => jobsTable(page.items, now) + more(page.nextCursor));
      }),
    );

  withJson(jobs.command('show'))
    .description('everything about one job: payload, attempts, last error')
    .argument('<id>', 'id of the job')
    .addHelpText('after', examples(['jobs show 4711', 'jobs show 4711 --json']))
    .action((id: string, options: JsonOption) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const job = await tallyman.jobs.get(id);
        if (!job) throw new TallymanError('NOT_FOUND', `there is no job ${id}`);
        show(options.json, jobJson(job), () => jobPage(job, now));
      }),
    );

  withJson(jobs.command('retry'))
    .description('run again: a failed, cancelled or dead job from the start, a waiting one now')
    .argument('<id...>', 'ids of the jobs')
    .addHelpText('after', examples(['jobs retry 4711 4712']))
    .action((ids: string[], options: JsonOption) =>
      frame.withTallyman(({ tallyman }) =>
        forEachId(ids, { ...options, done: 'retried', say: (id) => `job ${id} will be run again` }, (id) =>
          tallyman.jobs.retry(id),
        ),
      ),
    );

  withJson(jobs.command('cancel'))
    .description('end jobs that have not ended, also running ones')
    .argument('<id...>', 'ids of the jobs')
    .option('--reason <text>', 'kept with the job', 'cancelled by a person')
    .addHelpText('after', examples(['jobs cancel 4711', 'jobs cancel 4711 4712 --reason "wrong dock"']))
    .action((ids: string[], options: JsonOption & { reason: string }) =>
      frame.withTallyman(({ tallyman }) =>
        forEachId(ids, { ...options, done: 'cancelled', say: (id) => `job ${id} is cancelled` }, (id) =>
          tallyman.jobs.cancel(id, options.reason),
        ),
      ),
    );

  addEnqueue(jobs, frame);
}

export function jobsTable(jobs: readonly Job[], now: Date): string {
  if (jobs.length === 0) return 'No jobs.';
  return table<Job>(
    [
      { title: 'ID', value: (job) => job.id, right: true },
      { title: 'STATUS', value: (job) => job.status, paint: (text, job) => paintState(text, job.status) },
      { title: 'KIND', value: (job) => job.kind, shrinkTo: 10 },
      { title: 'QUEUE', value: (job) => job.queue, shrinkTo: 6, leaveOut: 3 },
      { title: 'LANE', value: (job) => job.lane, shrinkTo: 6, leaveOut: 2 },
      { title: 'TRIES', value: (job) => `${job.attempts}/${job.maxAttempts}`, right: true, leaveOut: 4 },
      { title: 'CREATED', value: (job) => relativeTime(job.createdAt, now), leaveOut: 1 },
      { title: 'NOTE', value: (job) => note(job, now), shrinkTo: 20 },
    ],
    jobs,
    terminalWidth(),
  );
}

/** What a user wants to know next about a job in this state. */
function note(job: Job, now: Date): string {
  const due =
    job.status === 'QUEUED' && job.scheduledAt > now ? `due ${relativeTime(job.scheduledAt, now)}` : '';
  const ended = job.finishedAt ? `ended ${relativeTime(job.finishedAt, now)}` : '';
  const unhappy = job.status !== 'SUCCEEDED' && job.lastError?.message ? job.lastError.message : '';
  return [due || ended, unhappy].filter(Boolean).join(': ');
}

function jobPage(job: Job, now: Date): string {
  const head = facts([
    ['job', job.id],
    ['status', job.status],
    ['kind', job.kind],
    ['queue', `${job.queue}, priority ${job.priority}`],
    ['lane', job.lane && `${job.lane}, seq ${job.seq}`],
    ['tenant', job.tenantId],
    ['attempts', `${job.attempts} of ${job.maxAttempts}`],
    ['correlation id', job.correlationId],
    ['dedupe key', job.dedupeKey],
    ['created', fullTime(job.createdAt, now)],
    ['scheduled', fullTime(job.scheduledAt, now)],
    ['ended', job.finishedAt && fullTime(job.finishedAt, now)],
  ]);
  return [head, payloadSection(job.payload), errorSection(job.lastError)].filter(Boolean).join('\n\n');
}

export const payloadSection = (payload: unknown): string =>
  `payload\n${indent(JSON.stringify(payload, null, 2))}`;

export function errorSection(error: JobError | null): string {
  if (!error?.code) return '';
  const { code, message, attempt, worker, at, redrives, stack } = error;
  const where = [
    `attempt ${attempt}`,
    worker && `worker ${worker}`,
    at,
    redrives > 0 && `redriven ${redrives === 1 ? 'once' : `${redrives} times`}`,
  ];
  const frames = stack ? stack.split('\n').filter((line) => line.trimStart().startsWith('at ')) : [];
  return `last error\n${indent([`${code}: ${message}`, where.filter(Boolean).join(', '), ...frames].join('\n'))}`;
}

const indent = (text: string): string =>
  printableLines(text)
    .split('\n')
    .map((line) => `  ${line}`)
    .join('\n');
