import { prepareTenants } from '../../engine/database/tenant.ts';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import { LockSession } from '../../engine/locks/lock-session.ts';
import type { Host, RunningApp } from '../../host/app.ts';
import { EventsFromFacts } from './bridge/events-from-facts.ts';
import { FactsFromEvents } from './bridge/facts-from-events.ts';
import {
  type CertificateOptions,
  type Certificates,
  CertificateWatch,
  loadCertificates,
} from './certificates.ts';
import type { BoundaryConfig } from './config.ts';
import { signReceipt } from './domain/receipt.ts';
import { Carrier, type CarrierOptions } from './handoff/carrier.ts';
import { PeerConnections } from './handoff/connections.ts';
import { Pace } from './handoff/pace.ts';
import { pullOnce } from './handoff/pull.ts';
import { comparePast, pushOnce } from './handoff/push.ts';
import type { BoundaryObserver } from './metrics.ts';
import { type NodeParts, openNode } from './node.ts';
import { fromInbox, instanceOf, makeFolders, toOutbox } from './oneway/carry.ts';
import { type BoundaryServer, startBoundaryServer } from './rpc/server.ts';
import type { BoundaryNode, RefusedCall } from './rpc/service.ts';
import { genuineBy, loadReceiptKey, type PeerSettings, type Settings, settingsFrom } from './settings.ts';
import type { StreamId } from './store/store.ts';
import { tasksOf } from './upkeep.ts';
import { StreamWatch } from './watch.ts';

/** Starts the node of the configured zone: storage, hand-offs, upkeep, and the port last. */
export async function startBoundary(
  host: Host,
  config: BoundaryConfig,
  observer: BoundaryObserver,
): Promise<RunningApp> {
  const settings = settingsFrom(config);
  if (!settings) return { summary: 'off (boundary.zone is not set)' };
  const { logger } = host;
  const { database } = host.tallyman;
  await prepareTenants(database);
  const receiptKey = await loadReceiptKey(settings.receiptKeyFile);
  const tls = settings.tls && { ...settings.tls, zone: settings.zone };
  const certificates = tls && (await loadCertificates(tls));
  const parts = await openNode(settings, database, {
    onTrimmed: ({ buffer, from, to }, count) =>
      logger.info(
        { buffer, from, to, facts: count },
        'a stream that was short of room has trimmed confirmed facts before boundary.retention.keepMs',
      ),
    onDropped: ({ from, to }, count) => {
      observer.dropped(from, to, count);
      logger.warn({ from, to, facts: count }, 'a full stream has dropped its oldest facts');
    },
  });
  host.onStop(() => parts.stop());
  const node: BoundaryNode = {
    zone: settings.zone,
    zones: settings.zones,
    sendsTo: settings.sendsTo,
    tenantId: settings.tenantId,
    store: parts.store,
    intake: parts.intake,
    objects: parts.objects,
    isGenuine: genuineBy(settings.peers),
    receiptKey,
    logger,
    onRefusal: (refusal) => audit(host, settings, observer, refusal),
  };

  const toFacts = new FactsFromEvents(parts, logger);
  const toEvents = new EventsFromFacts(parts, logger);
  for (const bridge of [toFacts, toEvents]) {
    await bridge.listen();
    startUntilStop(host, bridge);
  }

  const connections = certificates && connectionsOf(host, settings, certificates);
  await makeFolders(settings.peers);
  const locks = new LockSession(parts.database, 'tallyman stream locks');
  host.onStop(() => locks.stop());
  for (const carrier of carriersOf(parts, { node, connections, locks })) startUntilStop(host, carrier);
  for (const task of tasksOf(parts, logger)) startUntilStop(host, task);
  const watch = new StreamWatch({ node: parts, observer, logger });
  startUntilStop(host, watch);

  let inUse = certificates;
  const server = await startBoundaryServer({
    node,
    ...settings.listen,
    ...(tls && { tls: { load: async () => inUse ?? loadCertificates(tls), identities: tls.identities } }),
  }).catch((error: unknown) => {
    throw cannotListen(settings, error);
  });
  host.onStop(() => server.stop());
  const renewal =
    tls &&
    certificates &&
    watchCertificates(host, certificates, tls, async (found) => {
      inUse = found;
      await server.reload();
      connections?.reload(found);
      observer.certificateExpires(found.expiresAt);
    });
  if (certificates) observer.certificateExpires(certificates.expiresAt);
  return {
    summary: summaryOf(settings, server),
    health: () => {
      const troubles = [
        parts.store.trouble,
        parts.blobs.trouble,
        renewal?.trouble(new Date()),
        ...watch.troubles,
        ...toFacts.troubles,
        ...toEvents.troubles,
      ].filter((each) => each !== undefined);
      return [{ name: 'boundary', trouble: troubles.length === 0 ? undefined : troubles.join('; ') }];
    },
  };
}

const cannotListen = ({ listen }: Settings, error: unknown): TallymanError =>
  new TallymanError(
    'CANNOT_LISTEN',
    `The boundary cannot listen on ${listen.host}:${listen.port} (boundary.listen.host, boundary.listen.port): ${messageOf(error)}`,
    { cause: error },
  );

interface Background {
  start(): void;
  stop(): Promise<void>;
}

function startUntilStop(host: Host, part: Background): void {
  host.onStop(() => part.stop());
  part.start();
}

function connectionsOf(
  host: Host,
  { peers, tls }: Settings,
  certificates: Certificates,
): PeerConnections | undefined {
  if (!tls) return undefined;
  const connections = new PeerConnections({ peers, identities: tls.identities, certificates });
  host.onStop(async () => connections.close());
  return connections;
}

function watchCertificates(
  host: Host,
  current: Certificates,
  options: CertificateOptions,
  onChange: (found: Certificates) => Promise<void>,
): CertificateWatch {
  const watch = new CertificateWatch(current, { ...options, logger: host.logger, onChange });
  startUntilStop(host, watch);
  return watch;
}

/** A carrier for each stream that this node carries itself. */
function carriersOf(
  parts: NodeParts,
  {
    node,
    connections,
    locks,
  }: {
    readonly node: BoundaryNode;
    readonly connections: PeerConnections | undefined;
    readonly locks: LockSession;
  },
): Carrier[] {
  const { settings, database } = parts;
  const { zone, tenantId, sendsTo, pace } = settings;
  const isBusy = (): boolean => parts.intake.isBusy;
  return settings.peers.flatMap((peer) => {
    const out: StreamId = { tenantId, buffer: 'store', from: zone, to: peer.zone };
    const into: StreamId = { tenantId, buffer: 'forward', from: peer.zone, to: zone };
    const carrier = (
      stream: StreamId,
      carry: CarrierOptions['carry'],
      retry?: CarrierOptions['retry'],
    ): Carrier =>
      new Carrier({ database, locks, stream, carry, logger: node.logger, ...(retry && { retry }) });
    const isSentTo = sendsTo.includes(peer.zone);
    const { outbox, inbox } = peer;
    if (peer.ways.includes('one-way'))
      return [
        ...(outbox !== undefined && isSentTo ? [carrier(out, toOutbox(node, out, { ...peer, outbox }))] : []),
        // Files come when they come: it looks again soon.
        ...(inbox !== undefined
          ? [carrier(into, fromInbox(parts, node, into, inbox), { minMs: 500, maxMs: 5000 })]
          : []),
      ];
    if (!connections) return [];
    return [
      ...(peer.ways.includes('push') && isSentTo
        ? [carrier(out, pushing(node, out, peer, connections, new Pace({ ...pace, isBusy })))]
        : []),
      ...(peer.ways.includes('pull')
        ? [carrier(into, pulling(node, into, peer, connections, new Pace({ ...pace, isBusy })))]
        : []),
    ];
  });
}

function pushing(
  { store, objects, isGenuine }: BoundaryNode,
  stream: StreamId,
  { zone }: PeerSettings,
  connections: PeerConnections,
  pace: Pace,
) {
  const carried = new Set<string>();
  return async (waitMs: number, signal: AbortSignal): Promise<number> => {
    const peer = connections.client(zone);
    const instance = instanceOf(stream.from);
    const pushed = await pushOnce(
      { store, objects, stream, peer, isGenuine, instance, carried, pace },
      waitMs,
      signal,
    );
    // Without facts nothing was sent: ask, so that it is known whether the other zone answers, and whether it has what is not here.
    if (pushed === 0) await comparePast(store, stream, peer, signal);
    return pushed;
  };
}

const pulling =
  (
    { store, objects, receiptKey }: BoundaryNode,
    stream: StreamId,
    { zone }: PeerSettings,
    connections: PeerConnections,
    pace: Pace,
  ) =>
  (waitMs: number, signal: AbortSignal): Promise<number> =>
    pullOnce(
      {
        store,
        objects,
        stream,
        peer: connections.client(zone),
        sign: (receipt) => signReceipt(receipt, receiptKey),
        instance: instanceOf(stream.to),
        pace,
      },
      waitMs,
      signal,
    );

/** A refusal is an audit event: who, what, and why. */
function audit(
  host: Host,
  { tenantId }: Settings,
  observer: BoundaryObserver,
  { name, address, action, code, reason }: RefusedCall,
): void {
  observer.refused(code);
  host.audit({
    tenantId,
    actor: name,
    action: `boundary.${action}`,
    resource: reason.slice(0, 1000),
    status: code === 'not_allowed' || code === 'not_local' ? 403 : 401,
    code: code.toUpperCase(),
    address: address ?? null,
  });
}

function summaryOf({ zone, peers, listen, tls }: Settings, { port }: BoundaryServer): string {
  const host = listen.host.includes(':') ? `[${listen.host}]` : listen.host;
  const others = peers.map((peer) =>
    peer.ways.length === 0 ? `${peer.zone} connects` : `${peer.ways.join(' and ')} with ${peer.zone}`,
  );
  return [`zone ${zone} on ${tls ? 'https' : 'http'}://${host}:${port}`, ...others].join(', ');
}
