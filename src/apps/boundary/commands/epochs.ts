import type { Command } from 'commander';
import { messageOf } from '../../../engine/errors.ts';
import { exitCodes, usage } from '../../../host/cli/exit.ts';
import { examples, type JsonOption, withJson } from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { confirm, Progress } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { AcceptPlan } from '../epochs/accept-epoch.ts';
import type { NewEpoch, NewEpochOptions, NewEpochPlan } from '../epochs/new-epoch.ts';
import type { NodeParts } from '../node.ts';
import type { StreamId } from '../store/store.ts';
import { nodeFrom, zonesGroup } from './frame.ts';
import { offset } from './offset.ts';
import { hasAddress, withPeer } from './peer.ts';

interface EpochOptions extends JsonOption {
  readonly yes?: boolean;
}

/** `tallyman zones new-epoch|accept-epoch`: the way back after a database was restored from a backup. */
export function addEpochs(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  const zones = zonesGroup(program);
  withJson(zones.command('new-epoch'))
    .description('after this zone was restored from a backup: go on behind what the other zone has')
    .argument('<zone>', 'the zone that facts go to')
    .option('--after <offset>', 'last offset the other zone has (default: ask its node)', offset)
    .option('-y, --yes', 'do not ask for confirmation')
    .addHelpText(
      'after',
      `${examples(['zones new-epoch enterprise', 'zones new-epoch plant-a --after 2041 --yes --json'])}

Prints a command to be run in the other zone. Until then nothing crosses, and
producers go on. Facts that were appended here since the restore cross again
under new offsets; those that the other zone has already do not count twice.`,
    )
    .action((name: string, options: EpochOptions & { readonly after?: number }) =>
      withNode(async (node) => {
        const { settings, database, store, objects } = node;
        const [{ planNewEpoch, startNewEpoch }, { tokenText }] = await Promise.all([
          import('../epochs/new-epoch.ts'),
          import('../epochs/started.ts'),
        ]);
        const stream = await streamOf(node, settings.zone, name);
        const reached = options.after === undefined ? await ask(node, stream) : { offset: options.after };
        const progress = new Progress('appending again');
        const work: NewEpochOptions = {
          ...{ database, store, objects, stream, reached },
          onProgress: (done, total) => progress.show(done, total),
        };
        const plan = await planNewEpoch(work);
        if (!(await agreed(intention(stream, reached.offset, plan), options))) return;
        const started = await startNewEpoch(work).finally(() => progress.end());
        const token = tokenText(started);
        const command = `tallyman zones accept-epoch ${stream.from} ${token}`;
        show(options.json, newEpochJson(stream, started, { token, command }), () =>
          [
            `${stream.from} → ${stream.to} goes on in epoch ${started.epoch}, behind offset ${started.boundary}.`,
            `${count(started.again, 'fact')} of the former epoch were appended again.`,
            ...(started.boundary > started.after
              ? [
                  `Offsets ${started.after + 1} to ${started.boundary} become gap records in zone "${stream.to}".`,
                ]
              : []),
            `Now run in zone "${stream.to}":`,
            `  ${command}`,
          ].join('\n'),
        );
      }),
    );

  withJson(zones.command('accept-epoch'))
    .description('go on with another zone that was restored from a backup; see zones new-epoch')
    .argument('<zone>', 'the zone that facts come from')
    .argument('<token>', 'as `zones new-epoch` printed it there')
    .option('-y, --yes', 'do not ask for confirmation')
    .addHelpText('after', examples(['zones accept-epoch plant-a 0b1c…:2041:9f86…']))
    .action((name: string, text: string, options: EpochOptions) =>
      withNode(async (node) => {
        const { store } = node;
        const [{ planAcceptEpoch }, { tokenIn }] = await Promise.all([
          import('../epochs/accept-epoch.ts'),
          import('../epochs/started.ts'),
        ]);
        const token = tokenIn(text);
        const stream = await streamOf(node, name, node.settings.zone);
        const plan = await planAcceptEpoch(store, stream, token);
        const what =
          `Go on with ${stream.from} → ${stream.to} in epoch ${token.epoch} behind offset ${plan.offset}, and no longer ` +
          `in epoch ${plan.formerEpoch}. What was received stays as it is`;
        if (plan.state === 'open') {
          if (!(await agreed(what, options))) return;
          await store.acceptEpoch(stream, token.epoch, token.chain);
        }
        show(
          options.json,
          {
            ...{ from_zone: stream.from, to_zone: stream.to, epoch: token.epoch },
            ...{ frontier: plan.offset, existing: plan.state !== 'open' },
          },
          () => accepted[plan.state](stream, plan.offset),
        );
      }),
    );
}

const accepted: Record<AcceptPlan['state'], (stream: StreamId, offset: number) => string> = {
  accepted: (_, offset) => `The epoch was accepted before; facts were received up to offset ${offset}.`,
  first: ({ from, to }) =>
    `There is nothing to accept: zone "${to}" has received nothing from zone "${from}" yet, and begins with any epoch. Facts cross ` +
    'without this command. See tallyman zones status.',
  open: ({ from }, offset) =>
    `Facts of zone "${from}" cross again behind offset ${offset}. See tallyman zones status.`,
};

async function streamOf({ settings }: NodeParts, from: string, to: string): Promise<StreamId> {
  const { streamBetween } = await import('../node.ts');
  return streamBetween(settings, from, to);
}

/** How far the other zone has come. Refused where nothing is wrong: facts cross without a new epoch. */
async function ask(node: NodeParts, stream: StreamId): Promise<NewEpochOptions['reached']> {
  const by = `name the offset with --after: in zone "${stream.to}" the frontier of ${stream.from} → ${stream.to} in tallyman zones status`;
  if (!hasAddress(node, stream.to))
    throw usage(`this node has no address of zone "${stream.to}" (boundary.peers.${stream.to}.url): ${by}`);
  const [{ startFrontier }, { requireContinuation }, { frontierOf }] = await Promise.all([
    import('../domain/delivery.ts'),
    import('../handoff/source.ts'),
    import('../rpc/messages.ts'),
  ]);
  const zones = { fromZone: stream.from, toZone: stream.to };
  const frontier = await withPeer(
    node,
    stream.to,
    async (peer) => (await peer.getFrontier({ stream: zones })).frontier,
  ).catch((error: unknown) => {
    throw usage(`zone "${stream.to}" cannot be asked (${messageOf(error)}): ${by}`);
  });
  const state = await node.store.state(stream);
  const { epoch = '' } = state ?? {};
  // A zone that has received nothing begins with any epoch: what counts is whether the first facts are still here.
  const reached = frontier ? frontierOf(frontier) : startFrontier(epoch);
  const fits =
    state !== undefined &&
    (await requireContinuation(node.store, stream, state, reached).then(
      () => true,
      (error: unknown) => {
        if (error instanceof BoundaryError) return false;
        throw error;
      },
    ));
  if (fits)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'not_needed',
      `zone "${stream.to}" has received up to offset ${reached.offset}, and that is what is here, too: facts cross without a new epoch`,
    );
  return { offset: reached.offset, ...(frontier && { epoch: frontier.epoch }) };
}

function intention({ from, to }: StreamId, after: number, { state, started, again }: NewEpochPlan): string {
  const behind = Math.max(after, state.last);
  if (started) return `Complete epoch ${started.epoch} of ${from} → ${to}, which was started before`;
  return (
    `Zone "${to}" has ${from} → ${to} up to offset ${after}; here it ends at ${state.last}. Start a new epoch behind offset ${behind}, ` +
    `and append ${count(again, 'fact')} again that may not have crossed`
  );
}

/** Asks for confirmation, unless --yes was given. */
async function agreed(what: string, { yes }: EpochOptions): Promise<boolean> {
  if (yes) return true;
  if (!process.stdin.isTTY) throw usage(`${what}: add --yes to do it without confirmation`);
  if (await confirm(`${what}?`)) return true;
  complain('Nothing was done.');
  process.exitCode = exitCodes.failed;
  return false;
}

const newEpochJson = (
  { from, to }: StreamId,
  { epoch, after, boundary, again }: NewEpoch,
  { token, command }: { readonly token: string; readonly command: string },
) => ({
  from_zone: from,
  to_zone: to,
  epoch,
  after_offset: after,
  boundary_offset: boundary,
  appended_again: again,
  token,
  next_command: command,
});
