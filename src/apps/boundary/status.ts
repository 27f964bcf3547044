/** What there is to say about the streams of a node, from its storage: for metrics, alarms and people. */
import { TenantDatabase } from '../../engine/database/tenant.ts';
import { refusedEvents } from './bridge/refused-events.ts';
import type { HandOffWay } from './config.ts';
import { type HandOffState, handOffStates } from './handoff/handoffs.ts';
import { peerConsumer } from './handoff/source.ts';
import type { OnFull } from './limits/admission.ts';
import type { NodeParts } from './node.ts';
import { type Pin, pinOf } from './retention.ts';
import { onFullOf, type Settings } from './settings.ts';
import type { ConsumerState, StreamId, StreamState } from './store/store.ts';

export interface StreamStatus extends StreamId {
  /** Undefined while nothing was ever appended. */
  readonly state: StreamState | undefined;
  readonly consumers: readonly ConsumerState[];
  /** Who carries it: this node by push or by pull, or the node of the other zone. */
  readonly carriedBy: HandOffWay | 'peer' | 'nobody';
  readonly handOff: HandOffState | undefined;
  /** `store`: the highest offset that the other zone has confirmed. `forward`: the highest that was received. */
  readonly frontier: number;
  /** `store`: facts that the other zone has not confirmed. `forward`: facts that some consumer here has not. */
  readonly backlog: number;
  /** The age of the oldest of those; 0 if there are none. */
  readonly lagSeconds: number;
  readonly quarantined: number;
  /** Of `store`: events that matched a rule but cannot become a fact. */
  readonly refusedEvents: number;
  /** Facts that were dropped because the stream was full, or that a restore has cost. */
  readonly dropped: number;
  /** `store`: what the stream does when it is full. */
  readonly onFull: OnFull | undefined;
  readonly pin: Pin | undefined;
  /** Whether the other zone answers, as far as this node knows. */
  readonly isConnected: boolean;
}

/** Every stream that there is or should be, those that leave first. */
export async function streamStatuses(node: NodeParts, now: Date): Promise<StreamStatus[]> {
  const { settings, store, database } = node;
  const { tenantId } = settings;
  const [states, handOffs, quarantined, dropped, refused] = await Promise.all([
    store.streams(tenantId),
    handOffStates(database, tenantId),
    quarantineCounts(node),
    dropCounts(node),
    refusedEvents(database, tenantId),
  ]);
  const known = new Map(states.map((state) => [nameOf(state), state]));
  const all = new Map<string, StreamId>(
    [...expected(settings), ...states].map(({ buffer, from, to }) => {
      const stream: StreamId = { tenantId, buffer, from, to };
      return [nameOf(stream), stream];
    }),
  );
  const statuses: StreamStatus[] = [];
  for (const [name, stream] of all) {
    const state = known.get(name);
    const consumers = state ? await store.consumers(stream) : [];
    const counts = {
      quarantined: quarantined.get(name) ?? 0,
      dropped: dropped.get(name) ?? 0,
      refusedEvents: (stream.buffer === 'store' && refused.get(stream.to)) || 0,
    };
    statuses.push(await statusOf(node, stream, state, consumers, handOffs(stream), counts, now));
  }
  return statuses.sort((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1));
}

async function statusOf(
  { settings, store }: NodeParts,
  stream: StreamId,
  state: StreamState | undefined,
  consumers: readonly ConsumerState[],
  handOff: HandOffState | undefined,
  counts: Pick<StreamStatus, 'quarantined' | 'dropped' | 'refusedEvents'>,
  now: Date,
): Promise<StreamStatus> {
  const isOut = stream.buffer === 'store';
  const peer = consumers.find(({ name }) => name === peerConsumer(stream.to));
  const frontier = isOut ? (peer?.cursor ?? 0) : ((await store.frontier(stream))?.offset ?? 0);
  const pin = state && pinOf(state, consumers);
  // A forward buffer that nobody reads keeps everything; that is no backlog of anybody.
  const behind = isOut ? frontier : Math.min(state?.last ?? 0, ...consumers.map(({ cursor }) => cursor));
  const beyond = state ? Math.max(0, state.last - Math.max(behind, state.first - 1)) : 0;
  const [oldest] = beyond > 0 ? await store.read(stream, { after: behind, limit: 1, maxBytes: 1 }) : [];
  // Behind the last fact a new epoch may have left out offsets: nothing waits there.
  const backlog = oldest ? beyond : 0;
  const carriedBy = carrierOf(settings, stream);
  return {
    ...stream,
    state,
    consumers,
    carriedBy,
    handOff,
    frontier,
    backlog,
    lagSeconds: oldest ? Math.max(0, (now.getTime() - oldest.appendedAt.getTime()) / 1000) : 0,
    ...counts,
    onFull: isOut ? onFullOf(settings, stream.to) : undefined,
    pin,
    isConnected:
      carriedBy !== 'peer' && carriedBy !== 'nobody'
        ? handOff?.mode === 'normal' || handOff?.mode === 'refused'
        : isOut && peer !== undefined && peer.leasedUntil > now,
  };
}

function carrierOf({ peers }: Settings, { buffer, from, to }: StreamId): StreamStatus['carriedBy'] {
  const isOut = buffer === 'store';
  const peer = peers.find(({ zone }) => zone === (isOut ? to : from));
  if (!peer) return 'nobody';
  if (peer.ways.includes('one-way'))
    return (isOut ? peer.outbox : peer.inbox) === undefined ? 'nobody' : 'one-way';
  const way: HandOffWay = isOut ? 'push' : 'pull';
  return peer.ways.includes(way) ? way : 'peer';
}

function expected({ zone, peers, sendsTo, tenantId }: Settings): StreamId[] {
  return peers.flatMap((peer): StreamId[] => [
    ...(sendsTo.includes(peer.zone)
      ? [{ tenantId, buffer: 'store' as const, from: zone, to: peer.zone }]
      : []),
    { tenantId, buffer: 'forward', from: peer.zone, to: zone },
  ]);
}

/** Relies on drops_pkey. */
async function dropCounts({ database, settings }: NodeParts): Promise<ReadonlyMap<string, number>> {
  const { rows } = await new TenantDatabase(database, settings.tenantId).query<{
    stream: string;
    count: number;
  }>(
    `select concat_ws('/', buffer, from_zone, to_zone) as stream, sum(to_offset - from_offset + 1)::float8 as count
       from boundary.drops where tenant_id = $1 group by buffer, from_zone, to_zone`,
    [settings.tenantId],
  );
  return new Map(rows.map(({ stream, count }) => [stream, count]));
}

/** Relies on quarantine_pkey. */
async function quarantineCounts({ database, settings }: NodeParts): Promise<ReadonlyMap<string, number>> {
  const { rows } = await new TenantDatabase(database, settings.tenantId).query<{
    stream: string;
    count: number;
  }>(
    `select concat_ws('/', buffer, from_zone, to_zone) as stream, count(*)::float8 as count
       from boundary.quarantine where tenant_id = $1 group by buffer, from_zone, to_zone`,
    [settings.tenantId],
  );
  return new Map(rows.map(({ stream, count }) => [stream, count]));
}

const orderOf = (stream: StreamId): string => `${stream.buffer === 'store' ? 1 : 2} ${nameOf(stream)}`;

export const nameOf = ({ buffer, from, to }: StreamId): string => `${buffer}/${from}/${to}`;
