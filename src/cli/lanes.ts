import type { Command } from 'commander';
import { TallymanError } from '../engine/errors.ts';
import type { Lane, LaneState } from '../engine/lanes/lanes.ts';
import { given } from '../given.ts';
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
import { print, show } from '../host/cli/output/print.ts';
import { facts, table } from '../host/cli/output/table.ts';
import { paintState, terminalWidth } from '../host/cli/output/terminal.ts';
import { fullTime, relativeTime } from '../host/cli/output/time.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { jobJson, laneJson, pageJson } from '../server/routes/json.ts';
import { errorSection, jobsTable } from './jobs.ts';

interface WhereOptions extends JsonOption {
  readonly queue?: string;
  readonly tenant?: string;
}

const states: readonly LaneState[] = ['held', 'ready', 'waiting', 'blocked', 'resting'];
const whereOf = ({ queue, tenant: tenantId }: WhereOptions) => given({ queue, tenantId });

const withWhere = (command: Command): Command =>
  command.option('-q, --queue <name>', 'of this queue').option('-t, --tenant <id>', 'of this tenant');

export function addLanes(program: Command, frame: CommandFrame): void {
  const lanes = group(program, 'lanes', 'keys under which jobs run one after another');

  withWhere(withPage(lanes.command('list')))
    .description('lanes, newest first: who holds each, how much waits in it')
    .option('-s, --state <state>', `one of ${states.join(', ')}`, oneOf(states))
    .addHelpText('after', examples(['lanes list --state blocked', 'lanes list --queue dock --json']))
    .action((options: PageOptions & WhereOptions & { state?: LaneState }) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const filter = { ...whereOf(options), ...given({ state: options.state }) };
        const page = await collect(options, (at) => tallyman.lanes.list(filter, at));
        show(
          options.json,
          pageJson(page, laneJson),
          () => lanesTable(page.items, now) + more(page.nextCursor),
        );
      }),
    );

  withWhere(withJson(lanes.command('show')))
    .description('one lane: what blocks it, and its newest jobs')
    .argument('<key>', 'key of the lane')
    .addHelpText('after', examples(['lanes show door-7', 'lanes show door-7 --queue dock --json']))
    .action((key: string, options: WhereOptions) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const lane = await tallyman.lanes.get(key, whereOf(options));
        if (!lane) throw new TallymanError('NOT_FOUND', `there is no lane "${key}"`);
        const { queue, tenantId } = lane;
        const jobs = (await tallyman.jobs.list({ lane: key, queue, tenantId }, { limit: 10 })).items;
        const blockedBy =
          lane.blockedBy === null ? null : ((await tallyman.jobs.get(lane.blockedBy)) ?? null);
        const more = { blocked_by_job: blockedBy && jobJson(blockedBy), newest_jobs: jobs.map(jobJson) };
        show(options.json, { ...laneJson(lane), ...more }, () =>
          [
            facts([
              ['lane', lane.key],
              ['state', lane.state],
              ['queue', lane.queue],
              ['tenant', lane.tenantId],
              ['on failure', lane.policy === 'block' ? 'blocks and waits for a person' : 'skips and goes on'],
              ['pending', lane.pending],
              ['held by', lane.worker],
              ['due', lane.dueAt && fullTime(lane.dueAt, now)],
              ['blocked', lane.blockedAt && `${fullTime(lane.blockedAt, now)} by job ${lane.blockedBy}`],
            ]),
            errorSection(blockedBy?.lastError ?? null),
            jobs.length > 0 ? `newest jobs\n${jobsTable(jobs, now)}` : '',
          ]
            .filter(Boolean)
            .join('\n\n'),
        );
      }),
    );

  withWhere(lanes.command('unblock'))
    .description('let a blocked lane continue after the job that blocked it')
    .argument('<key>', 'key of the lane')
    .addHelpText(
      'after',
      `${examples(['lanes unblock door-7'])}

To run the job that blocked it first, redrive it instead:
  $ tallyman dead-letters redrive <id> --to-head`,
    )
    .action((key: string, options: WhereOptions) =>
      frame.withTallyman(async ({ tallyman }) => {
        await tallyman.lanes.unblock(key, whereOf(options));
        print(`lane "${key}" goes on`);
      }),
    );
}

function lanesTable(lanes: readonly Lane[], now: Date): string {
  if (lanes.length === 0) return 'No lanes.';
  return table<Lane>(
    [
      { title: 'LANE', value: (lane) => lane.key, shrinkTo: 10 },
      { title: 'STATE', value: (lane) => lane.state, paint: (text, lane) => paintState(text, lane.state) },
      { title: 'PENDING', value: (lane) => lane.pending, right: true },
      { title: 'QUEUE', value: (lane) => lane.queue, shrinkTo: 6, leaveOut: 1 },
      { title: 'TENANT', value: (lane) => lane.tenantId, shrinkTo: 6, leaveOut: 3 },
      { title: 'POLICY', value: (lane) => lane.policy, leaveOut: 2 },
      { title: 'NOTE', value: (lane) => laneNote(lane, now), shrinkTo: 10 },
    ],
    lanes,
    terminalWidth(),
  );
}

function laneNote(lane: Lane, now: Date): string {
  if (lane.blockedAt) return `by job ${lane.blockedBy}, ${relativeTime(lane.blockedAt, now)}`;
  if (lane.worker) return `by ${lane.worker}`;
  return lane.dueAt ? `due ${relativeTime(lane.dueAt, now)}` : '';
}
