/** A worker process of the soak. Its settings are its first argument. It ends when its parent does. */
import { flushCompileCache } from 'node:module';
import { Tallyman } from '../../src/engine/index.ts';
import { type SoakSettings, soakKinds, soakQueues, witnessPool } from './soak-kinds.ts';

const settings = JSON.parse(process.argv[2] ?? '{}') as SoakSettings;
process.on('disconnect', () => process.exit(0));

const tallyman = await Tallyman.open({
  databaseUrl: settings.url,
  poolSize: 10,
  applicationName: 'soak worker',
});
const kinds = soakKinds({ pool: witnessPool(settings.url), process: settings.process });
const worker = tallyman.worker({
  kinds: Object.values(kinds),
  queues: soakQueues,
  ...(settings.leaseMs !== undefined && {
    leaseMs: settings.leaseMs,
    recoverIntervalMs: settings.leaseMs / 4,
  }),
});
await worker.start();
// A killed process writes no cache at its end; without one every start reads all the sources anew.
flushCompileCache();
process.send?.('ready');
