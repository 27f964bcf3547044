import { execFile, spawn } from 'node:child_process';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { TallymanError } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import { spawnAs } from './account.ts';
import type { Area } from './area.ts';
import type { Binaries } from './binaries.ts';
import { cannotRun, serverEnvironment } from './cluster.ts';
import { HOST } from './port.ts';
import { clearPostmasterFile, isPostmasterOf, postmastersOf, readPostmasterFile } from './postmaster-file.ts';
import { openServerLog } from './server-log.ts';

/** A server we started, until it ends. */
export interface Postmaster {
  readonly pid: number;
  readonly ended: Promise<void>;
  hasEnded(): boolean;
}

export interface LaunchOptions {
  readonly area: Area;
  readonly binaries: Binaries;
  readonly port: number;
  readonly settings: Readonly<Record<string, string>>;
  readonly logger: Logger;
}

/** Recovery after a crash is part of a start and may take minutes. If it is interrupted, it only begins again. */
const START_LIMIT_MS = 300_000;
const READY_POLL_MS = 4;
const FAST_STOP_MS = 60_000;
const IMMEDIATE_STOP_MS = 10_000;
/** Backends of a killed server notice within moments; a new one may not start before the last has gone. */
const LEFTOVERS_MS = 20_000;
/** More than two only when a server survives even SIGKILL; then PostgreSQL's own lock refuses the start. */
const ORPHAN_ROUNDS = 3;

const SETTING = /^[a-z_][a-z0-9_.]*$/i;

function commandLine({ area, port, settings }: LaunchOptions): string[] {
  const all = {
    ...settings,
    // Last, so that no setting opens the server to more than this machine.
    listen_addresses: HOST,
    port: String(port),
    // A socket file would need a folder both accounts can reach, with a path short enough, and be one more way in.
    unix_socket_directories: '',
  };
  for (const name of Object.keys(all)) {
    if (!SETTING.test(name)) {
      throw new TallymanError('EMBEDDED_BAD_SETTING', `"${name}" is not the name of a PostgreSQL setting.`);
    }
  }
  return ['-D', area.data, ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])];
}

export type Launched = Postmaster | 'port taken';

/** Starts the server and waits until it takes connections. The caller owns the area and has stopped any other. */
export async function launch(options: LaunchOptions): Promise<Launched> {
  const leftoversUntil = Date.now() + LEFTOVERS_MS;
  for (;;) {
    const outcome = await launchOnce(options);
    if (typeof outcome === 'object' && 'pid' in outcome) return outcome;
    if (/could not (create any TCP|bind IPv4)/.test(outcome.log)) return 'port taken';
    const leftovers =
      /pre-existing shared memory block|lock file "postmaster.pid" (already exists|is empty)/.test(
        outcome.log,
      );
    if (!leftovers || Date.now() > leftoversUntil) throw startFailed(options.area, outcome.log);
    // A parent killed in the middle of its start leaves a child that was not yet a server when we looked.
    await stopOrphan(options.area, options.binaries, options.logger);
    await sleep(100);
  }
}

const startFailed = (area: Area, log: string): TallymanError =>
  new TallymanError(
    'EMBEDDED_START_FAILED',
    `The embedded PostgreSQL in ${area.asked} did not start. The end of ${area.log}:\n${log || '(nothing was written)'}`,
    { details: { dataDir: area.asked, log: area.log } },
  );

/** Await nothing between the spawn and the listeners: the exit of a server that ends at once would be missed. */
function spawnServer(options: LaunchOptions, logFile: number): Postmaster & { failure(): Error | undefined } {
  const { area, binaries } = options;
  const child = spawn(binaries.postgres, commandLine(options), {
    ...spawnAs(area.account),
    cwd: dirname(binaries.postgres),
    env: serverEnvironment(),
    // Its own process group: Ctrl-C in the terminal is for our process, which then stops the server in order.
    detached: true,
    stdio: ['ignore', logFile, logFile],
    windowsHide: true,
  });
  let ended = false;
  let failure: Error | undefined;
  const end = new Promise<void>((resolve) => {
    const settle = (): void => {
      ended = true;
      resolve();
    };
    child.once('exit', settle);
    child.once('error', (error) => {
      failure = error;
      settle();
    });
  });
  return { pid: child.pid ?? 0, ended: end, hasEnded: () => ended, failure: () => failure };
}

async function launchOnce(options: LaunchOptions): Promise<Postmaster | { readonly log: string }> {
  const { area, binaries, logger } = options;
  const log = await openServerLog(area);
  let postmaster: ReturnType<typeof spawnServer>;
  try {
    postmaster = spawnServer(options, log.file.fd);
  } finally {
    await log.file.close();
  }
  const { pid } = postmaster;
  if (pid === 0) {
    await postmaster.ended;
    throw cannotRun(binaries.postgres, postmaster.failure());
  }
  const deadline = Date.now() + START_LIMIT_MS;
  // The server says in its own file when it is ready: no failed logins in its log, no other server mistaken for it.
  for (;;) {
    if (postmaster.hasEnded()) return { log: await log.tail() };
    const file = await readPostmasterFile(area);
    if (file?.pid === pid && file.status === 'ready') return postmaster;
    if (Date.now() > deadline) {
      await stopPostmaster(postmaster, binaries, logger);
      throw startFailed(area, `(not ready after ${START_LIMIT_MS / 1000} s)\n${await log.tail()}`);
    }
    await sleep(READY_POLL_MS);
  }
}

/** Windows has no signals; PostgreSQL has its own there, and pg_ctl sends them. */
async function signal(pid: number, name: 'INT' | 'QUIT' | 'KILL', binaries: Binaries): Promise<void> {
  if (process.platform === 'win32') {
    await promisify(execFile)(binaries.pgCtl, ['kill', name, String(pid)]).catch(() => {});
    return;
  }
  // Continued too: one that a test (or a debugger) has stopped does not see the first signal.
  for (const each of [`SIG${name}`, 'SIGCONT'] as NodeJS.Signals[]) {
    try {
      process.kill(pid, each);
    } catch (error) {
      // It has ended since.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

async function until(condition: () => boolean | Promise<boolean>, limitMs: number): Promise<boolean> {
  for (const deadline = Date.now() + limitMs; Date.now() < deadline; await sleep(READY_POLL_MS)) {
    if (await condition()) return true;
  }
  return condition();
}

async function stopInSteps(
  pid: number,
  gone: () => boolean | Promise<boolean>,
  binaries: Binaries,
  logger: Logger,
): Promise<void> {
  if (await gone()) return;
  // Fast shutdown: ends the sessions, writes everything out.
  await signal(pid, 'INT', binaries);
  if (await until(gone, FAST_STOP_MS)) return;
  logger.warn(
    { pid },
    'embedded PostgreSQL does not shut down; stopping it at once, it will recover at the next start',
  );
  await signal(pid, 'QUIT', binaries);
  if (await until(gone, IMMEDIATE_STOP_MS)) return;
  await signal(pid, 'KILL', binaries);
  await until(gone, IMMEDIATE_STOP_MS);
}

export const stopPostmaster = (postmaster: Postmaster, binaries: Binaries, logger: Logger): Promise<void> =>
  stopInSteps(postmaster.pid, postmaster.hasEnded, binaries, logger);

/**
 * A parent that was killed leaves its server running. It is stopped, not adopted: the new one then has the
 * settings, programs and log of this start, and a parent that notices its end. The caller owns the area, so
 * the process that started that server is gone.
 */
export async function stopOrphan(area: Area, binaries: Binaries, logger: Logger): Promise<void> {
  for (let round = 0; round < ORPHAN_ROUNDS; round++) {
    // The file before the processes: then no server that creates its file in between is taken for a dead one.
    const file = await readPostmasterFile(area);
    const running = await postmastersOf(area);
    if (running.length === 0) {
      if (file) await clearPostmasterFile(area, file, logger);
      return;
    }
    for (const pid of running) {
      logger.info({ pid }, 'stopping the embedded PostgreSQL that a killed process left running');
      await stopInSteps(pid, async () => !(await isPostmasterOf(pid, area)), binaries, logger);
    }
  }
}
