import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { open, readFile, readlink, realpath, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { type Area, missing, writeBeside } from './area.ts';
import { pidExists } from './process-identity.ts';

/** What a running server writes about itself in its data folder. */
export interface PostmasterFile {
  readonly pid: number;
  readonly status: string;
  readonly text: string;
}

const pathIn = (area: Area): string => join(area.data, 'postmaster.pid');

export async function readPostmasterFile(area: Area): Promise<PostmasterFile | undefined> {
  // The folder belongs to the server's account; root must not be led elsewhere by a link in it.
  const file = await open(pathIn(area), constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0)).catch(
    missing<Awaited<ReturnType<typeof open>>>,
  );
  if (!file) return undefined;
  const text = await file.readFile('utf8').finally(() => file.close());
  const lines = text.split('\n');
  const pid = Math.abs(Number.parseInt(lines[0] ?? '', 10));
  return Number.isInteger(pid) && pid > 0 ? { pid, status: lines[7]?.trim() ?? '', text } : undefined;
}

/** Whether the process is the server of this very data folder, and not one that got its number since. */
export async function isPostmasterOf(pid: number, area: Area): Promise<boolean> {
  if (!(await pidExists(pid))) return false;
  if (process.platform === 'win32') return commandLine(area, 'tasklist', ['/FI', `PID eq ${pid}`, '/NH']);
  if (process.platform !== 'linux') return commandLine(area, 'ps', ['-o', 'command=', '-p', String(pid)]);
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  const [program, ...args] = command.split('\0');
  if (basename(program ?? '') !== 'postgres') return false;
  // A server works in its data folder, also after the folder has been moved.
  const at = await readlink(`/proc/${pid}/cwd`).catch(() => undefined);
  return at === undefined ? args.includes(area.data) : at === (await realpath(area.data));
}

async function commandLine(area: Area, program: string, args: string[]): Promise<boolean> {
  const { stdout } = await promisify(execFile)(program, args).catch(() => ({ stdout: '' }));
  // Windows' list has no arguments; there the name has to do.
  return stdout.includes('postgres') && (program === 'tasklist' || stdout.includes(area.data));
}

/**
 * After a crash the file names a process that is no more. If its number belongs to somebody else by now, or nobody has
 * collected the dead process yet (a zombie: containers often have no init), PostgreSQL takes it for a running
 * server and refuses to start. It does not mind the number of its own parent there, so we write ours.
 * The other lines stay: from them it finds out whether a backend of the dead server still uses the data.
 */
export async function disownPostmasterFile(area: Area, file: PostmasterFile): Promise<void> {
  // There it neither has zombies nor looks at its parent.
  if (process.platform === 'win32') return;
  const text = [String(process.pid), ...file.text.split('\n').slice(1)].join('\n');
  const draft = await writeBeside(
    { ...area, keeper: area.account ?? area.keeper },
    join(area.folder, 'postmaster.pid'),
    text,
    0o600,
  );
  await rename(draft, pathIn(area)).catch(async (error) => {
    await rm(draft, { force: true });
    throw error;
  });
}
