import { Counter, Histogram, type Registry } from 'prom-client';
import type { LabelObserver } from './worker/observer.ts';

/** From a fast push to a label that was out of reach for an hour. */
const lagSeconds = [1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3600];

/** What the label workers of this process do, for Prometheus. */
export function exposeLabels(registry: Registry): LabelObserver {
  const registers = [registry];
  const pushes = new Counter({
    name: 'tallyman_label_pushes_total',
    help: 'Images offered to gateways, by outcome: accepted, retried (to be tried again) or failed (given up).',
    labelNames: ['outcome'],
    registers,
  });
  const unchanged = new Counter({
    name: 'tallyman_label_images_unchanged_total',
    help: 'Changes whose image the gateway had already: nothing was pushed.',
    registers,
  });
  const drifted = new Counter({
    name: 'tallyman_label_drifts_total',
    help: 'Pages that the drift check found to show something else than they should.',
    registers,
  });
  const lag = new Histogram({
    name: 'tallyman_label_lag_seconds',
    help: 'Time from a change until its label was known to show it.',
    buckets: lagSeconds,
    registers,
  });
  // Prometheus sees no increase when a series first appears with 1, so each starts at 0.
  for (const outcome of ['accepted', 'retried', 'failed']) pushes.inc({ outcome }, 0);
  return {
    pushed: (outcome) => pushes.inc({ outcome }),
    unchanged: () => unchanged.inc(),
    drifted: () => drifted.inc(),
    shown: (seconds) => lag.observe(Math.max(0, seconds)),
  };
}
