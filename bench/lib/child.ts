import { fork } from 'node:child_process';
import { once } from 'node:events';
import { endWithUs } from './processes.ts';

/** What a measuring process sends home. `progress` tells how far it was if it has to be ended. */
export type FromChild<Result> =
  | { readonly kind: 'progress'; readonly text: string }
  | { readonly kind: 'result'; readonly result: Result }
  | { readonly kind: 'error'; readonly message: string };

/**
 * Runs `module` in a fresh Node with this one's flags, hands it `task`, and returns what it sends back.
 * A process that gives no answer within `timeout` milliseconds is killed, and the error says how far it was.
 */
export async function measureInChild<Task extends object, Result>(
  module: string,
  task: Task,
  timeout: number,
): Promise<Result> {
  const child = fork(module, [], { stdio: ['ignore', 2, 2, 'ipc'] });
  endWithUs(child);
  const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  let progress = 'no progress reported';
  let timer: NodeJS.Timeout | undefined;
  const answer = new Promise<Result>((resolve, reject) => {
    child.on('message', (message: FromChild<Result>) => {
      if (message.kind === 'progress') progress = message.text;
      else if (message.kind === 'result') resolve(message.result);
      else reject(new Error(message.message));
    });
    exited.then(
      ([code, signal]) =>
        reject(new Error(`its process ended without a result (${signal ?? `code ${code}`}); ${progress}`)),
      reject,
    );
    timer = setTimeout(
      () => reject(new Error(`timed out: no result after ${timeout / 1000} s; ${progress}`)),
      timeout,
    );
  });
  try {
    child.send(task);
    return await answer;
  } finally {
    clearTimeout(timer);
    // The figure is in hand (or there is none): nothing a dying process still does can change it.
    child.kill('SIGKILL');
    await exited;
  }
}

/** The other side: runs `measure` on the task this process was started for. */
export function serve<Task, Result>(
  measure: (task: Task, report: (text: string) => void) => Promise<Result>,
): void {
  const say = (message: FromChild<Result>) => process.send?.(message);
  process.once('message', (task: Task) => {
    measure(task, (text) => say({ kind: 'progress', text })).then(
      (result) => say({ kind: 'result', result }),
      (error: Error) => say({ kind: 'error', message: error.stack ?? String(error) }),
    );
  });
  // Without a parent there is nobody to measure for.
  process.once('disconnect', () => process.exit(1));
}
