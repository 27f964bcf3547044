import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { pathToFileURL } from 'node:url';

export interface OwnProcess {
  /** Null when it had not ended by itself in time and was killed: something was left open. */
  readonly exitCode: number | null;
  readonly output: string;
}

/**
 * Runs a module's code in a Node of its own and waits for it to end by itself: a timer or socket
 * that was left behind keeps a process alive, whatever kind it is.
 */
export async function runAlone(code: string, cwd: string, limitMs: number): Promise<OwnProcess> {
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', code], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  const killer = setTimeout(() => child.kill('SIGKILL'), limitMs);
  const [exitCode] = (await once(child, 'close')) as [number | null];
  clearTimeout(killer);
  return { exitCode, output };
}

/** An `import` specifier for a source file, as a literal. */
export function specifier(path: string): string {
  return JSON.stringify(pathToFileURL(path).href);
}
