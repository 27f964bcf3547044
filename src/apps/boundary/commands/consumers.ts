import type { Command } from 'commander';
import { TallymanError } from '../../../engine/errors.ts';
import { usage } from '../../../host/cli/exit.ts';
import { examples, group, type JsonOption, withJson } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import { relativeTime } from '../../../host/cli/output/time.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { streamName } from '../domain/delivery.ts';
import type { ConsumerState, Position, StreamState } from '../store/store.ts';
import { position } from './fact-reads.ts';
import { chosenStream, nodeFrom, type StreamOptions, withStream } from './frame.ts';

interface Consumer extends ConsumerState {
  readonly stream: StreamState;
}

interface ChangeOptions extends JsonOption, StreamOptions {
  readonly force?: boolean;
}

/** As `peerConsumer` names them. */
const isPeer = (name: string): boolean => name.startsWith('peer:');

export function addConsumers(program: Command, frame: CommandFrame): void {
  const consumers = group(program, 'consumers', 'who fetches facts here, and how far each has come');
  const withNode = nodeFrom(frame);

  withJson(consumers.command('list'))
    .description('consumers of every stream of this node; a peer is one of them')
    .addHelpText('after', examples(['consumers list', 'consumers list --json']))
    .action((options: JsonOption) =>
      withNode(async ({ settings, store }, { now }) => {
        const found: Consumer[] = [];
        for (const stream of await store.streams(settings.tenantId))
          for (const consumer of await store.consumers(stream)) found.push({ ...consumer, stream });
        show(options.json, { items: found.map(consumerJson), next_cursor: null }, () =>
          consumersTable(found, now),
        );
      }),
    );

  withStream(withJson(consumers.command('seek')))
    .description('move a consumer anywhere; what it has fetched and not confirmed counts no more')
    .argument('<name>', 'of the consumer')
    .argument('<position>', 'first, end, an offset to go on behind, or a time', position)
    .option('--force', 'also a peer: what it has received is not sent again, whatever you say')
    .addHelpText('after', examples(['consumers seek erp first', 'consumers seek erp 1200 --from plant-a']))
    .action((name: string, to: Position, options: ChangeOptions) =>
      withNode(async ({ settings, store }) => {
        const stream = await chosenStream(settings, options);
        requireForce(name, options, 'the hand-off looks after its cursor');
        const { cursor } = await store.seek(stream, name, to);
        show(options.json, { name, cursor }, () => `"${name}" goes on behind offset ${cursor}`);
      }),
    );

  withStream(withJson(consumers.command('delete')))
    .description('delete a consumer: it no longer keeps facts from being trimmed')
    .argument('<name>', 'of the consumer')
    .option('--force', 'also a peer: facts that it has not received may be trimmed')
    .addHelpText('after', examples(['consumers delete erp', 'consumers delete erp --from plant-a --json']))
    .action((name: string, options: ChangeOptions) =>
      withNode(async ({ settings, store }) => {
        const stream = await chosenStream(settings, options);
        requireForce(name, options, 'facts that the other zone has not received could be trimmed');
        if (!(await store.deleteConsumer(stream, name)))
          throw new TallymanError('NOT_FOUND', `${streamName(stream)} has no consumer "${name}"`);
        show(options.json, { deleted: name }, () => `"${name}" is deleted`);
      }),
    );
}

function requireForce(name: string, { force }: ChangeOptions, why: string): void {
  if (isPeer(name) && !force) throw usage(`"${name}" is another zone: ${why}. If you mean it, add --force.`);
}

const backlogOf = ({ stream, cursor }: Consumer): number =>
  Math.max(0, stream.last - Math.max(cursor, stream.first - 1));

const consumerJson = (consumer: Consumer) => ({
  name: consumer.name,
  from_zone: consumer.stream.from,
  to_zone: consumer.stream.to,
  cursor: consumer.cursor,
  backlog: backlogOf(consumer),
  instance: consumer.instance,
  leased_until: consumer.leasedUntil.toISOString(),
  created_at: consumer.createdAt.toISOString(),
  confirmed_at: consumer.confirmedAt?.toISOString() ?? null,
});

const consumersTable = (consumers: readonly Consumer[], now: Date): string =>
  table<Consumer>(
    [
      { title: 'CONSUMER', value: ({ name }) => name, shrinkTo: 10 },
      { title: 'FROM', value: ({ stream }) => stream.from },
      { title: 'TO', value: ({ stream }) => stream.to },
      { title: 'CURSOR', value: ({ cursor }) => cursor, right: true },
      { title: 'BACKLOG', value: backlogOf, right: true },
      { title: 'INSTANCE', value: ({ instance }) => instance, shrinkTo: 8, leaveOut: 1 },
      {
        title: 'CONFIRMED',
        value: ({ confirmedAt }) => (confirmedAt ? relativeTime(confirmedAt, now) : 'never'),
      },
    ],
    consumers,
    terminalWidth(),
  );
