/** A worker in a process of its own: opens the store once more, and tells its parent of each job that starts. */
import { now } from './measure/clock.ts';
import type { FromWorker, ToWorker } from './measure/processes.ts';
import { systemNamed } from './systems/index.ts';

const say = (message: FromWorker) => process.send?.(message);
const forever = new Promise<void>(() => {});
let holding = false;

process.once('disconnect', () => process.exit(0));
process.on('message', async (message: ToWorker) => {
  if (message.kind === 'hold') {
    holding = true;
    say({ kind: 'holding' });
    return;
  }
  const { task } = message;
  holding = message.holding;
  const system = await systemNamed(task.system, task.baseline);
  const open = await system.open(task.url, task.workload);
  await open.work(({ index }) => {
    say({ kind: 'start', index, at: now() });
    return holding ? forever : undefined;
  });
  say({ kind: 'ready' });
});
