import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Task } from './bench.ts';
import { now } from './clock.ts';

/** A job that started in another process, and when by `now()`. */
export interface Start {
  readonly index: number;
  readonly at: number;
}

export type ToWorker =
  | { readonly kind: 'work'; readonly task: Task; readonly holding: boolean }
  /** From now on handlers do not return. */
  | { readonly kind: 'hold' };
export type FromWorker = { readonly kind: 'ready' | 'holding' } | ({ readonly kind: 'start' } & Start);

/** A worker in a process of its own. */
export interface WorkerProcess {
  hold(): Promise<void>;
  /** SIGKILL; returns the moment at which it was sent. */
  kill(): number;
  /** Rejects if the process ends although nobody killed it. */
  readonly failure: Promise<never>;
}

const here = (file: string) => join(import.meta.dirname, '..', file);

/** Starts a worker process; `onStart` hears of every job that starts there. */
export async function startWorker(
  task: Task,
  holding: boolean,
  onStart: (start: Start) => void,
): Promise<WorkerProcess> {
  const child = fork(here('worker.ts'), { stdio: ['ignore', 2, 2, 'ipc'] });
  let killed = false;
  const failure = endOf(child, 'worker', () => killed);
  const heard = (kind: 'ready' | 'holding') =>
    new Promise<void>((resolve) => {
      const listen = (message: FromWorker) => {
        if (message.kind !== kind) return;
        child.off('message', listen);
        resolve();
      };
      child.on('message', listen);
    });
  const send = (message: ToWorker) => child.send(message);
  child.on('message', (message: FromWorker) => {
    if (message.kind === 'start') onStart(message);
  });
  const ready = heard('ready');
  send({ kind: 'work', task, holding });
  await Promise.race([ready, failure]);
  return {
    failure,
    async hold() {
      const holds = heard('holding');
      send({ kind: 'hold' });
      await Promise.race([holds, failure]);
    },
    kill() {
      killed = true;
      const at = now();
      child.kill('SIGKILL');
      return at;
    },
  };
}

/** Lets another process enqueue what `enqueuer.ts` has for the workload; returns what it reports. */
export async function enqueueElsewhere<Report>(task: Task): Promise<Report> {
  const child = fork(here('enqueuer.ts'), { stdio: ['ignore', 2, 2, 'ipc'] });
  let answered = false;
  const failure = endOf(child, 'enqueuing', () => answered);
  const answer = once(child, 'message') as Promise<[Report]>;
  child.send(task);
  const [report] = await Promise.race([answer, failure]);
  answered = true;
  child.disconnect();
  return report;
}

/** Rejects when the process ends, unless that was `expected`; then never settles. */
function endOf(child: ChildProcess, role: string, expected: () => boolean): Promise<never> {
  const failure = new Promise<never>((_, reject) => {
    child.once('exit', (code, signal) => {
      if (!expected()) reject(new Error(`The ${role} process ended (${signal ?? `code ${code}`}).`));
    });
  });
  failure.catch(() => {});
  return failure;
}
