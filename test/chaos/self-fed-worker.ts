/** A worker that enqueues its own work, one job after another, and says what it was told is durable. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Tallyman } from '../../src/engine/tallyman.ts';
import type { WorkerSettings } from '../support/chaos.ts';
import { randomOf } from '../support/random.ts';
import { chaosKinds } from './kinds.ts';

const settings = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings & { readonly more: { seed: number } };
const random = randomOf(settings.more.seed);
process.on('disconnect', () => process.exit(0));

const tallyman = await Tallyman.open({
  databaseUrl: settings.url,
  poolSize: 6,
  applicationName: 'chaos worker',
});
const { once } = chaosKinds({ database: tallyman.database, worker: () => worker.id });
const worker = tallyman.worker({ kinds: [once], ...settings.options });
let atOnce = 0;
worker.events.on('claimed', ({ durationMs }) => {
  if (durationMs === undefined) atOnce += 1;
});
await worker.start();
process.send?.({ ready: worker.id });

for (let i = 0; ; i += 1) {
  const before = atOnce;
  const added = await tallyman.enqueue(once, { i }).catch(() => undefined);
  if (added)
    await tallyman.database
      .query('insert into acknowledged (job, at_once) values ($1, $2)', [added.id, atOnce > before])
      .catch(() => {});
  await sleep(random.chance(0.2) ? 30 : random.between(0, 8));
}
