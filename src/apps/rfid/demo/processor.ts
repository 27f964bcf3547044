import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { TallymanError } from '../../../engine/errors.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import type { Random } from '../../../simulate/random.ts';
import type { MqttOptions } from '../../iot/mqtt/index.ts';

/** What the process gets when it starts. */
export interface ProcessorOrders {
  readonly databaseUrl: string;
  readonly mqtt: MqttOptions;
}

const program = fileURLToPath(
  new URL(`./processor-process${import.meta.filename.slice(-3)}`, import.meta.url),
);
const stopLimitMs = 8000;

/** The processor in its own process, which can be killed. */
export class KillableProcessor {
  readonly #orders: ProcessorOrders;
  #child: ChildProcess | undefined;
  kills = 0;

  constructor(orders: ProcessorOrders) {
    this.#orders = orders;
  }

  /** Resolves when it has subscribed, or was killed before. */
  async start(): Promise<void> {
    // Not in our process group: Ctrl-C is for us, and we stop it.
    const child = fork(program, [], { detached: true, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    this.#child = child;
    child.send(this.#orders);
    const [first, signal] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as unknown[];
    if (first === 'ready' || signal === 'SIGKILL') return;
    throw new TallymanError(
      'PROCESSOR_FAILED',
      `the processor ended at once, with ${String(first ?? signal)}`,
    );
  }

  /** Kills and restarts it at random moments, at any stage, until the signal fires; then lets it run. */
  async torment(random: Random, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(300 + random.below(1700), signal);
      if (signal.aborted) return;
      await this.#end('SIGKILL');
      this.kills += 1;
      await pause(random.below(800), signal);
      const starting = this.start();
      // Sometimes before it has started up.
      if (random.chance(0.3)) await Promise.race([starting, pause(random.below(400), signal)]);
      else await starting;
      starting.catch(() => {});
    }
  }

  async stop(): Promise<void> {
    const timer = setTimeout(() => void this.#end('SIGKILL'), stopLimitMs);
    await this.#end('SIGTERM');
    clearTimeout(timer);
  }

  async #end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }
}
