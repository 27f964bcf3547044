import { Counter, Gauge, type Registry } from 'prom-client';
import type { RunningIntake } from './intake.ts';

/** What intake does, for Prometheus: read off its own counters whenever somebody looks. */
export function exposeIntake(registry: Registry, intake: RunningIntake): void {
  new Counter({
    name: 'tallyman_reads_total',
    help: 'Tag reads that were committed, by outcome: processed, duplicate, failed.',
    labelNames: ['outcome'],
    registers: [registry],
    collect() {
      const { counts } = intake.status();
      this.reset();
      this.inc({ outcome: 'duplicate' }, counts.duplicates);
      this.inc({ outcome: 'failed' }, counts.failed);
      this.inc({ outcome: 'processed' }, counts.reads - counts.duplicates - counts.failed);
    },
  });
  const simple = (name: string, help: string, read: () => number) =>
    new Counter({
      name,
      help,
      registers: [registry],
      collect() {
        this.reset();
        this.inc(read());
      },
    });
  simple(
    'tallyman_movements_total',
    'Movements of baskets that were recorded.',
    () => intake.status().counts.movements,
  );
  simple(
    'tallyman_unreadable_messages_total',
    'Messages kept as dead letters.',
    () => intake.status().counts.unreadable,
  );
  new Gauge({
    name: 'tallyman_mqtt_ready',
    help: '1 while intake is connected and subscribed.',
    registers: [registry],
    collect() {
      this.set(intake.status().mqtt.ready ? 1 : 0);
    },
  });
}
