import { Counter, Histogram, type Registry } from 'prom-client';
import type { PassportsObserver } from './observer.ts';

/** What the passport workers of this process do, for Prometheus. */
export function exposePassports(registry: Registry): PassportsObserver {
  const registers = [registry];
  const documents = new Counter({
    name: 'tallyman_passport_documents_total',
    help: 'Documents that were read, by outcome: validated or rejected.',
    labelNames: ['outcome'],
    registers,
  });
  const versions = new Counter({
    name: 'tallyman_passport_versions_total',
    help: 'Versions of passports by step: compiled, signed, labelled, active, or failed (for good).',
    labelNames: ['step'],
    registers,
  });
  const compile = new Histogram({
    name: 'tallyman_passport_compile_seconds',
    help: 'Time to compile one version, without the database.',
    buckets: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1],
    registers,
  });
  // Prometheus sees no increase when a series first appears with 1, so each starts at 0.
  for (const outcome of ['validated', 'rejected']) documents.inc({ outcome }, 0);
  for (const step of ['compiled', 'signed', 'labelled', 'active', 'failed']) versions.inc({ step }, 0);
  return {
    documentSettled: (outcome) => documents.inc({ outcome }),
    versions: (step, count) => versions.inc({ step }, count),
    compiled: (seconds) => compile.observe(seconds),
  };
}
