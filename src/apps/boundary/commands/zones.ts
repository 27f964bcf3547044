import type { Command } from 'commander';
import { examples, type JsonOption, withJson } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import { duration } from '../../../host/cli/output/time.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { StreamStatus } from '../status.ts';
import { nodeFrom, zonesGroup } from './frame.ts';

export function addZones(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  withJson(zonesGroup(program).command('status'))
    .description('every stream of this node: how far it has come, what waits, and what pins its space')
    .addHelpText('after', examples(['zones status', 'zones status --json']))
    .action((options: JsonOption) =>
      withNode(async (node, { now }) => {
        const [{ streamStatuses }, { describePin }] = await Promise.all([
          import('../status.ts'),
          import('../retention.ts'),
        ]);
        const streams = await streamStatuses(node, now);
        const { zone, pace } = node.settings;
        const { factsPerSecond = null, bytesPerSecond = null } = pace;
        const paced = { facts_per_second: factsPerSecond, bytes_per_second: bytesPerSecond };
        show(options.json, { zone, pace: paced, items: streams.map(statusJson), next_cursor: null }, () =>
          [
            `zone ${zone}${paceText(factsPerSecond, bytesPerSecond)}`,
            '',
            statusTable(streams),
            ...streams.flatMap((stream) => notes(stream, describePin).map((note) => `\n${note}`)),
          ].join('\n'),
        );
      }),
    );
}

function paceText(facts: number | null, bytes: number | null): string {
  const limits = [
    ...(facts === null ? [] : [`${facts} facts`]),
    ...(bytes === null ? [] : [`${bytes} bytes`]),
  ].join(' and ');
  return limits === '' ? '' : `, a backlog crosses with up to ${limits} per second`;
}

const statusJson = (stream: StreamStatus) => ({
  from_zone: stream.from,
  to_zone: stream.to,
  carried_by: stream.carriedBy,
  mode: stream.handOff?.mode ?? null,
  mode_since: stream.handOff?.modeSince?.toISOString() ?? null,
  trouble: stream.handOff?.trouble ?? null,
  stalled_since: stream.handOff?.stalledSince?.toISOString() ?? null,
  epoch: stream.state?.epoch ?? null,
  first_offset: stream.state?.first ?? null,
  last_offset: stream.state?.last ?? 0,
  frontier: stream.frontier,
  backlog: stream.backlog,
  lag_seconds: Math.round(stream.lagSeconds * 1000) / 1000,
  bytes: stream.state?.bytes ?? 0,
  full_since: stream.state?.fullSince?.toISOString() ?? null,
  quarantined: stream.quarantined,
  refused_events: stream.refusedEvents,
  dropped: stream.dropped,
  on_full: stream.onFull ?? null,
  pinned_by: stream.pin?.name ?? null,
});

const statusTable = (streams: readonly StreamStatus[]): string =>
  table<StreamStatus>(
    [
      { title: 'FROM', value: ({ from }) => from },
      { title: 'TO', value: ({ to }) => to },
      { title: 'CARRIED BY', value: ({ carriedBy }) => carriedBy },
      { title: 'MODE', value: ({ handOff }) => handOff?.mode ?? '' },
      { title: 'FRONTIER', value: ({ frontier }) => frontier, right: true },
      { title: 'LAST', value: ({ state }) => state?.last ?? 0, right: true },
      { title: 'BACKLOG', value: ({ backlog }) => backlog, right: true },
      {
        title: 'LAG',
        value: ({ backlog, lagSeconds }) => (backlog > 0 ? duration(lagSeconds * 1000) : ''),
        leaveOut: 2,
      },
      { title: 'BYTES', value: ({ state }) => state?.bytes ?? 0, right: true, leaveOut: 3 },
      { title: 'QUARANTINE', value: ({ quarantined }) => quarantined, right: true, leaveOut: 1 },
    ],
    streams,
    terminalWidth(),
  );

/** What somebody should know beyond the numbers. */
function notes(stream: StreamStatus, describePin: (pin: StreamStatus['pin']) => string): string[] {
  const name = `${stream.from} → ${stream.to}`;
  const { handOff, state, pin } = stream;
  return [
    ...(handOff?.stalledSince
      ? [`${name} is stalled since ${handOff.stalledSince.toISOString()}: the frontier does not move.`]
      : []),
    ...(handOff?.trouble ? [`${name}: ${handOff.trouble}`] : []),
    ...(state?.fullSince
      ? [`${name} is full since ${state.fullSince.toISOString()} and refuses facts.`]
      : []),
    ...(stream.refusedEvents > 0
      ? [
          `${name}: ${count(stream.refusedEvents, 'event')} cannot be facts; which, and why: tallyman facts refused-events list`,
        ]
      : []),
    ...(stream.dropped > 0
      ? [
          `${name}: ${count(stream.dropped, 'fact')} were dropped here; those that had not crossed are gap records in zone "${stream.to}".`,
        ]
      : []),
    ...(state && pin ? [`${name}: ${describePin(pin)}`] : []),
  ];
}
