/** A label worker in a process of its own, to be killed and paused. It ends when its parent does. */
import { flushCompileCache } from 'node:module';
import { labelsComponent } from '../../src/apps/labels/component.ts';
import { Gateways } from '../../src/apps/labels/worker/gateways.ts';
import { labelKinds } from '../../src/apps/labels/worker/kinds.ts';
import { redisLaneLock } from '../../src/engine/locks/redis.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { natsWakeup } from '../../src/engine/wakeups/nats.ts';
import { eventsComponent } from '../../src/events/component.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import type { Answer, WorkerSettings } from '../support/chaos.ts';

export interface LabelWorkerSettings {
  /** The master secret, in hex. */
  readonly secret: string;
}

const settings = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings & { more: LabelWorkerSettings };
process.on('disconnect', () => process.exit(0));

const reconnect = { minMs: 100, maxMs: 500 };
const tallyman = await Tallyman.open({
  databaseUrl: settings.url,
  poolSize: 8,
  applicationName: 'chaos label worker',
  components: [eventsComponent, labelsComponent],
  wakeups: settings.nats ? [natsWakeup({ servers: settings.nats, reconnect })] : [],
  ...(settings.redis && { laneLock: redisLaneLock({ url: settings.redis }) }),
});
const gateways = new Gateways(new SecretBox(Buffer.from(settings.more.secret, 'hex')));
const kinds = labelKinds({ database: tallyman.database, gateways, backoff: () => 50, askAfterMs: 0 });
const worker = tallyman.worker({ kinds, ...settings.options });
await worker.start();
flushCompileCache();
process.send?.({ ready: worker.id } satisfies Answer);
