/** What the commands of the boundary share. They work on the node's own database and folder, whether it serves or not. */
import type { Command } from 'commander';
import { prepareTenants } from '../../../engine/database/tenant.ts';
import { settingsOf } from '../../../host/app.ts';
import { usage } from '../../../host/cli/exit.ts';
import { group } from '../../../host/cli/options.ts';
import type { CommandFrame, Session } from '../../../host/cli/session.ts';
import { boundaryKeys } from '../config.ts';
import type { NodeParts } from '../node.ts';
import type { Settings } from '../settings.ts';
import type { StreamId } from '../store/store.ts';

export interface StreamOptions {
  readonly from?: string;
  readonly to?: string;
}

/** Default: the stream that comes in, where there is one other zone. */
export const withStream = (command: Command): Command =>
  command
    .option('--from <zone>', 'of the stream from this zone (default: the other zone, if there is one)')
    .option('--to <zone>', 'to this zone (default: the zone of this node)');

export const factsGroup = (program: Command): Command =>
  group(program, 'facts', 'facts between zones: append, fetch, find');
export const zonesGroup = (program: Command): Command =>
  group(program, 'zones', 'zones and the hand-offs between them');

export const nodeFrom =
  ({ withTallyman }: CommandFrame) =>
  (work: (node: NodeParts, session: Session) => Promise<void>): Promise<void> =>
    withTallyman(async (session) => {
      const { settingsFrom } = await import('../settings.ts');
      const settings = settingsFrom(settingsOf(boundaryKeys, session.config));
      if (!settings)
        throw usage(
          'boundary.zone is not set: this is no node of a zone. See docs/boundary.md, or: tallyman zones pair',
        );
      const { database } = session.tallyman;
      await prepareTenants(database);
      const { openNode } = await import('../node.ts');
      const node = await openNode(settings, database);
      try {
        await work(node, session);
      } finally {
        await node.stop();
      }
    });

export type WithNode = ReturnType<typeof nodeFrom>;

/** The stream that the options mean. */
export async function chosenStream(settings: Settings, options: StreamOptions): Promise<StreamId> {
  const { streamBetween } = await import('../node.ts');
  const { zone, zones } = settings;
  const givenFrom = options.from === undefined ? undefined : zones.resolve(options.from, '--from');
  const givenTo = options.to === undefined ? undefined : zones.resolve(options.to, '--to');
  const isOut = givenTo !== undefined && givenTo !== zone;
  const from = givenFrom ?? (isOut ? zone : otherZone(settings, '--from'));
  const to = givenTo ?? (from === zone ? otherZone(settings, '--to') : zone);
  return streamBetween(settings, from, to);
}

/** The only zone besides this one. */
export function otherZone({ zone, zones }: Settings, option: string): string {
  const others = zones.all.filter((each) => each !== zone);
  const [only] = others;
  if (only === undefined) throw usage('no other zone is configured (boundary.peers, boundary.zones)');
  if (others.length > 1)
    throw usage(`there are several zones, so name one with ${option}: ${others.join(', ')}`);
  return only;
}
