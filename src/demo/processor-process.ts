/** The processor of a demo with --chaos: a process that does nothing but take in, and expects to be killed. */
import { once } from 'node:events';
import { mqttSettings } from '../apps/iot/mqtt/index.ts';
import { startIntake } from '../apps/rfid/intake/index.ts';
import { Tallyman } from '../engine/tallyman.ts';
import { createLogger } from '../host/process/logger.ts';
import type { ProcessorOrders } from './processor.ts';

// Not longer than the demo that started us.
process.once('disconnect', () => process.exit());
const stopped = once(process, 'SIGTERM');
const [orders] = (await once(process, 'message')) as [ProcessorOrders];
// Taking back what the one before it held is what it is there for, not worth a warning between the counts.
const logger = createLogger({ level: 'error' });
const tallyman = await Tallyman.open({
  databaseUrl: orders.databaseUrl,
  poolSize: 4,
  applicationName: 'tallyman demo processor',
  housekeeping: false,
  logger,
});
const intake = await startIntake({
  tallyman,
  settings: mqttSettings(orders.mqtt),
  logger,
  // What a killed one held is free again soon: nobody wants to wait a minute to see the books balance.
  worker: { leaseMs: 3000, renewMs: 1000, recoverIntervalMs: 1000 },
});
process.send?.('ready');
await stopped;
await intake.stop();
await tallyman.close();
process.exit();
