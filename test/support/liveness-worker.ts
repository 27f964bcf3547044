/** A worker process of the liveness tests: its kinds and options are its first argument. It ends when its parent does. */
import { flushCompileCache } from 'node:module';
import pg from 'pg';
import { Tallyman } from '../../src/engine/index.ts';
import type { WorkerSettings } from './chaos.ts';
import { type KindSpec, stepKinds } from './liveness-kinds.ts';

const settings = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings & { more: readonly KindSpec[] };
process.on('disconnect', () => process.exit(0));

const pool = new pg.Pool({ connectionString: settings.url, max: 12, application_name: 'witness' });
pool.on('error', () => {});
const tallyman = await Tallyman.open({
  databaseUrl: settings.url,
  poolSize: 10,
  applicationName: 'liveness worker',
});
const worker = tallyman.worker({
  kinds: stepKinds(settings.more, { pool, worker: () => worker.id }),
  ...settings.options,
});
await worker.start();
process.on('message', (question) => {
  if (question === 'stop') void tallyman.close().then(() => process.exit(0));
});
// A killed process writes no cache at its end; without one every start reads all the sources anew.
flushCompileCache();
process.send?.({ ready: worker.id });
