/** Intakes in processes of their own, which are killed and come back under the same client id. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { MqttOptions } from '../../src/apps/iot/mqtt/index.ts';
import type { Random } from '../support/random.ts';

export interface InstanceSettings {
  readonly url: string;
  readonly name: string;
  readonly mqtt: MqttOptions;
}

const program = fileURLToPath(new URL('./plant-process.ts', import.meta.url));

/** An intake that can be killed; it comes back under the same client id. */
export class Instance {
  readonly #settings: InstanceSettings;
  #child: ChildProcess | undefined;
  #starts = 0;

  constructor(settings: InstanceSettings) {
    this.#settings = settings;
    onTestFinished(() => this.kill());
  }

  /**
   * Resolves when it has subscribed, or was killed before. One that finds no database ends by itself, and whoever runs it starts
   * it again: so do we.
   */
  async start(): Promise<void> {
    const own = ++this.#starts;
    for (let attempt = 1; own === this.#starts; attempt += 1) {
      const { isUp, output } = await this.#launch();
      if (isUp) return;
      if (attempt > 100) throw new Error(`it does not start: ${output}`);
      await sleep(100);
    }
  }

  /** At once, at any stage. */
  async kill(): Promise<void> {
    this.#starts += 1;
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  /** Whether it has subscribed since then. */
  async subscribedSince(time: number): Promise<boolean> {
    const child = this.#child;
    if (!child?.connected) return false;
    const answered = once(child, 'message', { signal: AbortSignal.timeout(1000) });
    child.send('status', () => {});
    const [status] = await answered.catch(() => []);
    return status?.ready === true && status.since >= time;
  }

  async #launch(): Promise<{ isUp: boolean; output: string }> {
    const child = fork(program, [JSON.stringify(this.#settings)], {
      execArgv: [],
      env: { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: join(tmpdir(), 'tallyman-chaos-cache') },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.#child = child;
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(-4000);
      });
    const [first] = await Promise.race([once(child, 'message'), once(child, 'exit')]);
    return { isUp: first === 'ready', output };
  }
}

/**
 * Kills one of them after another at random moments, spread over the work: the next one when as much is done as its share.
 * Each comes back at once; some are killed again before they are up.
 */
export async function killAlong(
  instances: readonly Instance[],
  random: Random,
  kills: number,
  { progress, gate }: { readonly progress: () => number; readonly gate: Gate },
): Promise<void> {
  for (let kill = 0; kill < kills; kill += 1) {
    const share = (kill + random.between(0, 1)) / kills;
    while (progress() < share) await sleep(10);
    await sleep(random.between(0, 150));
    const victim = random.of(instances);
    await gate.pass(async () => {
      await victim.kill();
      const starting = victim.start();
      if (random.between(0, 1) < 0.8) await starting;
      else await Promise.race([starting, sleep(random.between(0, 600))]);
      starting.catch(() => {});
    });
  }
}

/** Who comes to it while it is closed waits; who closes it waits for those who are inside. */
export class Gate {
  #opened = Promise.withResolvers<void>();
  #inside = new Set<Promise<unknown>>();

  constructor() {
    this.open();
  }

  async pass<T>(work: () => Promise<T>): Promise<T> {
    await this.#opened.promise;
    const working = work();
    this.#inside.add(working);
    return working.finally(() => this.#inside.delete(working));
  }

  async close(): Promise<void> {
    this.#opened = Promise.withResolvers();
    await Promise.allSettled(this.#inside);
  }

  open(): void {
    this.#opened.resolve();
  }
}
