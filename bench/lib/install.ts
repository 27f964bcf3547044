import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';

const BENCH = join(import.meta.dirname, '..');

/** Installs the peers as the lock names them, unless that is already done. */
export async function ensureInstalled(): Promise<void> {
  const [locked, installed] = await Promise.all([
    modifiedAt(join(BENCH, 'package-lock.json')),
    // npm writes this file last, so it is there only after a complete installation.
    modifiedAt(join(BENCH, 'node_modules', '.package-lock.json')),
  ]);
  if (installed !== undefined && installed >= (locked ?? 0)) return;
  process.stderr.write('Installing the peers (npm ci in bench/) …\n');
  const npm = spawn('npm', ['ci'], {
    cwd: BENCH,
    stdio: ['ignore', 2, 2],
    shell: process.platform === 'win32',
  });
  const [code] = (await once(npm, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`npm ci in bench/ ended with code ${code}; its output is above.`);
}

async function modifiedAt(path: string): Promise<number | undefined> {
  return stat(path).then(
    (file) => file.mtimeMs,
    () => undefined,
  );
}
