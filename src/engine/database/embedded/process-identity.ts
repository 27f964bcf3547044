import { execFile } from 'node:child_process';
import { readFile, readlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { promisify } from 'node:util';

/**
 * Identifies one process for good. A pid alone does not: it is reused after the process ends, after a reboot,
 * and in every container.
 */
export interface ProcessIdentity {
  readonly pid: number;
  /** When the kernel says it began; null where we cannot ask (Windows). */
  readonly startedAt: string | null;
  readonly boot: string | null;
  readonly pidNamespace: string | null;
  readonly host: string;
}

/** `unknown`: another container or machine, or a system that does not tell. */
export type Fate = 'alive' | 'dead' | 'unknown';

async function linuxStartTime(pid: number): Promise<string | undefined> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (line === undefined) return undefined;
  // The command name stands in parentheses and may itself hold spaces and parentheses.
  const [state, ...fields] = line.slice(line.lastIndexOf(')') + 2).split(' ');
  // A zombie has ended; only its parent has not looked yet.
  return state === 'Z' || state === 'X' ? 'ended' : fields[18];
}

async function startTime(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') return linuxStartTime(pid);
  if (process.platform === 'win32') return undefined;
  const env = { PATH: '/bin:/usr/bin', LC_ALL: 'C', TZ: 'UTC' };
  return promisify(execFile)('ps', ['-o', 'lstart=', '-p', String(pid)], { env }).then(
    ({ stdout }) => stdout.trim() || undefined,
    () => undefined,
  );
}

export async function ownIdentity(): Promise<ProcessIdentity> {
  const [startedAt, boot, pidNamespace] = await Promise.all([
    startTime(process.pid),
    readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => null),
    readlink('/proc/self/ns/pid').catch(() => null),
  ]);
  return {
    pid: process.pid,
    startedAt: startedAt ?? null,
    boot: boot?.trim() ?? null,
    pidNamespace,
    host: hostname(),
  };
}

/** Whether some process, whichever, has this pid and has not ended. */
export async function pidExists(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
  }
  return process.platform !== 'linux' || (await linuxStartTime(pid)) !== 'ended';
}

export async function fateOf(other: ProcessIdentity, self: ProcessIdentity): Promise<Fate> {
  const sameHost = other.host === self.host;
  if (other.boot !== self.boot) return sameHost ? 'dead' : 'unknown';
  if (other.pidNamespace !== self.pidNamespace || !sameHost) return 'unknown';
  if (!(await pidExists(other.pid))) return 'dead';
  const startedAt = await startTime(other.pid);
  if (startedAt === undefined || other.startedAt === null) return 'unknown';
  return startedAt === other.startedAt ? 'alive' : 'dead';
}
