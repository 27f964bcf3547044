/** The processor of a demo with --chaos: a process that only runs the intake, and expects to be killed. */
import { once } from 'node:events';
import { consoleLogger, silentLogger } from '../../../engine/logger.ts';
import { Tallyman } from '../../../engine/tallyman.ts';
import { mqttSettings } from '../../iot/mqtt/index.ts';
import { startIntake } from '../intake/index.ts';
import type { ProcessorOrders } from './processor.ts';

// Ends with the demo that started it.
process.once('disconnect', () => process.exit());
const stopped = once(process, 'SIGTERM');
const [orders] = (await once(process, 'message')) as [ProcessorOrders];
// It always recovers the work of a killed processor: that is not worth a warning between the counts.
const logger = { ...silentLogger, error: consoleLogger.error };
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
  // Short leases: the work of a killed processor is free again soon, so that the books balance within seconds.
  worker: { leaseMs: 3000, renewMs: 1000, recoverIntervalMs: 1000 },
});
process.send?.('ready');
await stopped;
await intake.stop();
await tallyman.close();
process.exit();
