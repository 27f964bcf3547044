import { Counter, Gauge, type Registry } from 'prom-client';
import type { StreamStatus } from './status.ts';

/** How a node gets on, for Prometheus. */
export interface BoundaryObserver {
  /** Of all streams; what is not in the list is no longer told. */
  saw(streams: readonly StreamStatus[], stalled: ReadonlySet<StreamStatus>): void;
  refused(code: string): void;
  dropped(from: string, to: string, count: number): void;
  certificateExpires(at: Date): void;
}

const modes = ['normal', 'autonomous', 'refused'] as const;

export function exposeBoundary(registry: Registry): BoundaryObserver {
  const registers = [registry];
  const ofStream = ['buffer', 'from', 'to'] as const;
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `tallyman_boundary_${name}`, help, labelNames: [...ofStream], registers });
  const frontier = gauge(
    'frontier_offset',
    'The highest offset that has crossed: confirmed by the other zone (store), or received from it (forward).',
  );
  const backlog = gauge(
    'backlog_facts',
    'Facts that the other zone has not confirmed (store), or that some consumer here has not (forward).',
  );
  const lag = gauge('lag_seconds', 'Age of the oldest fact of the backlog; 0 if there is none.');
  const bytes = gauge('stream_bytes', 'Bytes of the facts that are kept.');
  const full = gauge('stream_full', '1 while the stream has reached its limit and refuses facts.');
  const stalled = gauge(
    'stalled',
    '1 while the other zone answers and facts wait, but the frontier does not move.',
  );
  const quarantined = gauge(
    'quarantined_facts',
    'Facts in quarantine, because the receiver could not take them.',
  );
  const refusedEvents = new Gauge({
    name: 'tallyman_boundary_refused_events',
    help: 'Events that a rule should have made facts of, and that can never be one.',
    labelNames: [...ofStream],
    registers,
  });
  const mode = new Gauge({
    name: 'tallyman_boundary_mode',
    help: '1 for the mode that a hand-off of this node is in: normal, autonomous (the other zone cannot be reached) or refused (it answers, and does not take what comes next).',
    labelNames: [...ofStream, 'mode'],
    registers,
  });
  const refusals = new Counter({
    name: 'tallyman_boundary_refusals_total',
    help: 'Calls that were refused because of who made them, by reason.',
    labelNames: ['reason'],
    registers,
  });
  const drops = new Counter({
    name: 'tallyman_boundary_dropped_facts_total',
    help: 'Facts that full streams have dropped to make room (boundary.limits.onFull).',
    labelNames: ['from', 'to'],
    registers,
  });
  const expires = new Gauge({
    name: 'tallyman_boundary_certificate_expires_timestamp_seconds',
    help: 'When the certificate of this node expires.',
    registers,
  });
  return {
    saw: (streams, standing) => {
      for (const each of [frontier, backlog, lag, bytes, full, stalled, quarantined, refusedEvents, mode])
        each.reset();
      for (const stream of streams) {
        const { buffer, from, to } = stream;
        const labels = { buffer, from, to };
        frontier.set(labels, stream.frontier);
        backlog.set(labels, stream.backlog);
        lag.set(labels, stream.lagSeconds);
        bytes.set(labels, stream.state?.bytes ?? 0);
        full.set(labels, stream.state?.fullSince ? 1 : 0);
        stalled.set(labels, standing.has(stream) ? 1 : 0);
        quarantined.set(labels, stream.quarantined);
        refusedEvents.set(labels, stream.refusedEvents);
        const now = stream.handOff?.mode;
        if (now !== undefined)
          for (const each of modes) mode.set({ ...labels, mode: each }, each === now ? 1 : 0);
      }
    },
    refused: (reason) => refusals.inc({ reason }),
    dropped: (from, to, count) => drops.inc({ from, to }, count),
    certificateExpires: (at) => expires.set(at.getTime() / 1000),
  };
}
