import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { open, readdir, readFile, readlink, realpath, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { Logger } from '../../logger.ts';
import { type Area, missing, writeBeside } from './area.ts';
import { pidExists } from './process-identity.ts';

/**
 * What a running server writes about itself in its data folder. It creates the file first and writes it second, so a
 * kill in between leaves an empty file; a machine that loses power leaves any part of it, or zeros.
 */
export interface PostmasterFile {
  /** Undefined: the file is damaged. A first line without its end may be part of a longer number. */
  readonly pid: number | undefined;
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
  // initdb and single-user servers write their pid with a minus sign.
  const pid = Number(/^-?([1-9]\d*)\r?\n/.exec(text)?.[1]);
  return {
    pid: Number.isSafeInteger(pid) ? pid : undefined,
    status: text.split('\n')[7]?.trim() ?? '',
    text,
  };
}

/**
 * The running servers of this data folder, found by their processes: a server that has only just started has not yet
 * written its file, and a damaged file names nobody. Windows does not show the folder of a process, so there the file
 * has to do.
 */
export async function postmastersOf(area: Area): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await candidates(area)) if (await isPostmasterOf(pid, area)) found.push(pid);
  return found;
}

async function candidates(area: Area): Promise<number[]> {
  if (process.platform === 'win32') return [(await readPostmasterFile(area))?.pid ?? []].flat();
  if (process.platform === 'linux') return (await readdir('/proc')).map(Number).filter(Number.isInteger);
  const { stdout } = await promisify(execFile)('ps', ['-axo', 'pid=,command='], { maxBuffer: 2 ** 26 });
  return stdout
    .split('\n')
    .filter((line) => line.includes(area.data))
    .map((line) => Number.parseInt(line, 10));
}

/** Whether the process is the server of this very data folder, and not one that got its number since. */
export async function isPostmasterOf(pid: number, area: Area): Promise<boolean> {
  if (process.platform !== 'linux' && !(await pidExists(pid))) return false;
  if (process.platform === 'win32') return commandLine(area, 'tasklist', ['/FI', `PID eq ${pid}`, '/NH']);
  if (process.platform !== 'linux') return commandLine(area, 'ps', ['-o', 'command=', '-p', String(pid)]);
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  const [program = '', ...args] = command.split('\0');
  if (basename(program) !== 'postgres' || !(await pidExists(pid))) return false;
  const at = await readlink(`/proc/${pid}/cwd`).catch(() => undefined);
  // A server works in its data folder, also after the folder has been moved. Until it gets there it is beside its
  // program, where spawnServer starts it.
  const arrived = at !== undefined && at !== (await realpath(dirname(program)).catch(() => undefined));
  return arrived ? at === (await realpath(area.data).catch(missing<string>)) : args.includes(area.data);
}

async function commandLine(area: Area, program: string, args: string[]): Promise<boolean> {
  const { stdout } = await promisify(execFile)(program, args).catch(() => ({ stdout: '' }));
  // Windows' list has no arguments; there the name has to do. Elsewhere an editor may have a file of the folder open.
  return stdout.includes(program === 'tasklist' ? 'postgres' : `postgres -D ${area.data} `);
}

/**
 * Clears the file of a server that has ended out of the way of the next start. The caller owns the area and found no
 * running server after it had read the file.
 */
export async function clearPostmasterFile(area: Area, file: PostmasterFile, logger: Logger): Promise<void> {
  if (file.pid !== undefined) return disown(area, file);
  // PostgreSQL refuses to start on such a file, and says so. Backends of a dead server that still use the data it finds
  // without the file, by the shared memory that belongs to the folder.
  logger.warn(
    { dataDir: area.asked, bytes: file.text.length },
    'removing a damaged postmaster.pid: the embedded PostgreSQL was killed while it wrote it; no data is affected',
  );
  await rm(pathIn(area), { force: true });
}

/**
 * After a crash the file names a process that is no more. If its number belongs to somebody else by now, or nobody has
 * collected the dead process yet (a zombie: containers often have no init), PostgreSQL takes it for a running
 * server and refuses to start. It does not mind the number of its own parent there, so we write ours.
 * The other lines stay: from them it finds out whether a backend of the dead server still uses the data.
 */
async function disown(area: Area, file: PostmasterFile): Promise<void> {
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
