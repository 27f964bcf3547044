/** The simulated gateway in a process of its own, as a real one is on another machine. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { startLabelSimulator } from '../../../src/apps/labels/gateways/simulator/index.ts';
import { endWithUs, stop } from '../../lib/processes.ts';

export interface SimulatorProcess {
  readonly url: string;
  stop(): Promise<void>;
}

export async function startSimulator(): Promise<SimulatorProcess> {
  const child = fork(fileURLToPath(import.meta.url), ['serve'], { stdio: ['ignore', 2, 2, 'ipc'] });
  endWithUs(child);
  const [url] = (await once(child, 'message')) as [string];
  return { url, stop: () => stop(child, 'SIGTERM') };
}

if (process.argv[2] === 'serve' && process.send) {
  const { url } = await startLabelSimulator();
  process.send(url);
  process.once('disconnect', () => process.exit());
}
