/**
 * A worker in a process of its own, to be killed, paused and cut off. It is told what to be by its first argument and
 * answers questions over IPC. It ends when its parent does.
 */
import { flushCompileCache } from 'node:module';
import { redisLaneLock } from '../../src/engine/locks/redis.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { natsWakeup } from '../../src/engine/wakeups/nats.ts';
import { rabbitmqWakeup } from '../../src/engine/wakeups/rabbitmq.ts';
import type { Wakeup } from '../../src/engine/wakeups/wakeup.ts';
import type { Answer, Question, WorkerSettings } from '../support/chaos.ts';
import { chaosKinds } from './kinds.ts';

const settings = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings;
const say = (answer: Answer): void => void process.send?.(answer);
process.on('disconnect', () => process.exit(0));

const reconnect = { minMs: 100, maxMs: 500 };
let hints = 0;

/** Counts what it hears. */
function counted(wakeup: Wakeup): Wakeup {
  return {
    name: wakeup.name,
    start: (onHint) =>
      wakeup.start((hint) => {
        hints += 1;
        onHint(hint);
      }),
    publish: (hint) => wakeup.publish(hint),
    status: () => wakeup.status(),
    stop: () => wakeup.stop(),
  };
}

const wakeups: Wakeup[] = [];
if (settings.rabbitmq) wakeups.push(counted(rabbitmqWakeup({ url: settings.rabbitmq, reconnect })));
if (settings.nats) wakeups.push(counted(natsWakeup({ servers: settings.nats, reconnect })));

const tallyman = await Tallyman.open({
  databaseUrl: settings.url,
  // More than there are handlers that pause in the middle of a commit: the others must not wait for them.
  poolSize: 10,
  applicationName: 'chaos worker',
  wakeups,
  ...(settings.redis && { laneLock: redisLaneLock({ url: settings.redis }) }),
});
const kinds = chaosKinds({ database: tallyman.database, worker: () => worker.id });
const worker = tallyman.worker({ kinds: Object.values(kinds), ...settings.options });
await worker.start();

process.on('message', (question: Question) => {
  if (question === 'wakeups') say({ hints, states: wakeups.map((wakeup) => wakeup.status().state) });
  else
    void tallyman.close().then(() => {
      process.disconnect();
    });
});
// Who is killed writes no cache at its end; without one every start pays for reading all the sources anew.
flushCompileCache();
say({ ready: worker.id });
