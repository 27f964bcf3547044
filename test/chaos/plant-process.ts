/** Intake in a process of its own, to be killed. It is told what to be by its first argument and ends when its parent does. */
import { flushCompileCache } from 'node:module';
import { mqttSettings } from '../../src/apps/iot/mqtt/index.ts';
import { startIntake } from '../../src/apps/rfid/intake/index.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import type { InstanceSettings } from './plant-instance.ts';

const { url, name, mqtt } = JSON.parse(process.argv[2] ?? '') as InstanceSettings;
process.once('disconnect', () => process.exit());
const tallyman = await Tallyman.open({
  databaseUrl: url,
  poolSize: 4,
  // The witness column of the test takes it for the name of whoever wrote a row.
  applicationName: name,
  housekeeping: false,
});
const intake = await startIntake({
  tallyman,
  settings: mqttSettings(mqtt),
  worker: { leaseMs: 3000, renewMs: 1000, recoverIntervalMs: 1000 },
});
// Who is killed writes no cache at its end; without one every start pays for reading all the sources anew.
flushCompileCache();
process.on('message', () => {
  const { ready, since } = intake.status().mqtt ?? {};
  process.send?.({ ready, since: since?.getTime() });
});
process.send?.('ready');
