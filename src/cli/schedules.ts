import type { Command } from 'commander';
import { TallymanError } from '../engine/errors.ts';
import type { Schedule, Schedules } from '../engine/schedules/schedules.ts';
import { given } from '../given.ts';
import { examples, group, type JsonOption, withJson } from '../host/cli/options.ts';
import { print, show } from '../host/cli/output/print.ts';
import { table } from '../host/cli/output/table.ts';
import { paintState, terminalWidth } from '../host/cli/output/terminal.ts';
import { relativeTime } from '../host/cli/output/time.ts';
import { payloadHelp, payloadText } from '../host/cli/payload.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { pageJson, scheduleJson } from '../server/routes/json.ts';
import { requirePublicKind, withInternal } from './enqueue.ts';
import { type JobPlace, withPlace } from './job-options.ts';

interface PutOptions extends JsonOption, JobPlace {
  readonly cron: string;
  readonly kind: string;
  readonly payload?: string;
  readonly timezone?: string;
  readonly tenant?: string;
  readonly internal?: boolean;
}

interface TenantOption {
  readonly tenant?: string | undefined;
}

export function addSchedules(program: Command, frame: CommandFrame): void {
  const schedules = group(program, 'schedules', 'jobs that are enqueued by the clock');

  withJson(schedules.command('list'))
    .description('when each runs next')
    .addHelpText('after', examples(['schedules list', 'schedules list --json']))
    .action((options: JsonOption) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const items = await tallyman.schedules.list();
        show(options.json, pageJson({ items, nextCursor: null }, scheduleJson), () =>
          schedulesTable(items, now),
        );
      }),
    );

  withPlace(withInternal(withJson(schedules.command('put'))))
    .description('make a schedule, or change it; a paused one stays paused')
    .argument('<name>', 'name of the schedule')
    .requiredOption('--cron <expression>', 'when, such as "0 3 * * *"')
    .requiredOption('-k, --kind <name>', 'what to enqueue')
    .option('--payload <json>', `payload of each job: ${payloadHelp}`, payloadText)
    .option('--timezone <name>', 'such as Europe/Berlin (default: UTC)')
    .option('-t, --tenant <id>', 'for this tenant (default: default)')
    .addHelpText(
      'after',
      examples([
        'schedules put nightly-report --cron "0 3 * * *" --kind report',
        'schedules put shift --cron "0 6,14,22 * * *" --kind report --timezone Europe/Berlin --payload @shift.json --queue slow',
      ]),
    )
    .action((name: string, options: PutOptions) =>
      frame.withTallyman(async ({ tallyman: { database, schedules: all }, now }) => {
        const { cron, kind, timezone, tenant: tenantId, payload = '{}' } = options;
        const { queue, priority, lane, maxAttempts } = options;
        if (!options.internal) await requirePublicKind(database, kind);
        const schedule = await all.upsert({
          name,
          cron,
          kind,
          payload: JSON.parse(payload),
          ...given({ timezone, tenantId, queue, priority, lane, maxAttempts }),
        });
        show(options.json, scheduleJson(schedule), () => schedulesTable([schedule], now));
      }),
    );

  schedules
    .command('pause')
    .description('enqueues nothing until it is resumed')
    .argument('<name>', 'name of the schedule')
    .option('-t, --tenant <id>', 'of this tenant (default: default)')
    .addHelpText('after', examples(['schedules pause nightly-report']))
    .action((name: string, { tenant }: TenantOption) =>
      change(frame, { name, tenant }, 'is paused already', async (all) => {
        if (!(await all.pause(name, tenant))) return false;
        print(`schedule "${name}" is paused`);
        return true;
      }),
    );

  schedules
    .command('resume')
    .description('continues with the next due time; times during the pause are skipped')
    .argument('<name>', 'name of the schedule')
    .option('-t, --tenant <id>', 'of this tenant (default: default)')
    .addHelpText('after', examples(['schedules resume nightly-report']))
    .action((name: string, { tenant }: TenantOption) =>
      change(frame, { name, tenant }, 'is not paused', async (all) => {
        if (!(await all.resume(name, tenant))) return false;
        print(`schedule "${name}" goes on`);
        return true;
      }),
    );

  schedules
    .command('remove')
    .description('jobs it has enqueued stay')
    .argument('<name>', 'name of the schedule')
    .option('-t, --tenant <id>', 'of this tenant (default: default)')
    .addHelpText('after', examples(['schedules remove nightly-report']))
    .action((name: string, { tenant }: TenantOption) =>
      change(frame, { name, tenant }, 'is gone', async (all) => {
        if (!(await all.remove(name, tenant))) return false;
        print(`schedule "${name}" is removed`);
        return true;
      }),
    );
}

/** `work` returns whether it changed something. If not, there is no such schedule, or `otherwise` is the reason. */
function change(
  { withTallyman }: CommandFrame,
  { name, tenant = 'default' }: TenantOption & { readonly name: string },
  otherwise: string,
  work: (all: Schedules) => Promise<boolean>,
): Promise<void> {
  return withTallyman(async ({ tallyman: { schedules } }) => {
    if (await work(schedules)) return;
    if (!(await schedules.get(name, tenant)))
      throw new TallymanError('NOT_FOUND', `there is no schedule "${name}" of tenant "${tenant}"`);
    throw new TallymanError('BAD_STATE', `schedule "${name}" ${otherwise}`);
  });
}

function schedulesTable(schedules: readonly Schedule[], now: Date): string {
  if (schedules.length === 0) return 'No schedules.';
  const state = (schedule: Schedule): string => (schedule.enabled ? 'on' : 'paused');
  return table<Schedule>(
    [
      { title: 'SCHEDULE', value: (schedule) => schedule.name, shrinkTo: 10 },
      { title: 'STATE', value: state, paint: (text, schedule) => paintState(text, state(schedule)) },
      { title: 'CRON', value: (schedule) => schedule.cron },
      { title: 'TIMEZONE', value: (schedule) => schedule.timezone, leaveOut: 1 },
      { title: 'KIND', value: (schedule) => schedule.kind, shrinkTo: 8 },
      { title: 'NEXT', value: (s) => (s.enabled ? relativeTime(s.nextRunAt, now) : '') },
      { title: 'LAST', value: (s) => (s.lastRunAt ? relativeTime(s.lastRunAt, now) : ''), leaveOut: 2 },
      { title: 'LAST JOB', value: (schedule) => schedule.lastJobId ?? '', right: true, leaveOut: 3 },
    ],
    schedules,
    terminalWidth(),
  );
}
