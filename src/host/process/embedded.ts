import { constants } from 'node:fs';
import { access, open, readFile, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { EmbeddedPostgres } from '../../engine/database/embedded/index.ts';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import type { Logger } from '../../engine/logger.ts';

/**
 * The embedded server of a folder has one owner at a time: the process that started it. Others on the same machine
 * may use it meanwhile.
 *
 *   join    use the running server; start it if there is none   (a short command)
 *   own     start it; another owner's server is an error         (`npm start`)
 *   either  start it; use another owner's server if there is one (a worker)
 *
 * A process with `either` that uses another owner's server starts it again when it is gone, on the same port: the
 * owner stopped, or server and owner were killed. If only the owner is killed, its server keeps running.
 */
export type EmbeddedWish = 'join' | 'own' | 'either';

export interface EmbeddedUse {
  readonly url: string;
  readonly port: number;
  readonly dataDir: string;
  /** This process started it and stops it again. */
  readonly started: boolean;
  /** Resolves when the server is gone and does not come back; with a message for the user. */
  readonly lost: Promise<TallymanError>;
  close(): Promise<void>;
}

/** A connection to another owner's server; `gone` resolves when it ends. */
type Visit = Pick<EmbeddedUse, 'url' | 'port' | 'dataDir' | 'close'> & { readonly gone: Promise<void> };

/** A short command may own the server just now; another process may be starting it. */
const patienceMs: Readonly<Record<EmbeddedWish, number>> = { join: 4_000, own: 4_000, either: 1_500 };
/**
 * Before the owner stops the server, commands that joined it get this long to end. So a short command that started the
 * server does not break other commands.
 */
const guestLock = 0x7411_0003;
const guestsMs: Readonly<Record<EmbeddedWish, number>> = { join: 5_000, own: 500, either: 500 };
/** How long the owner may take to stop the server, or another process to start it again. */
const regainMs = 30_000;
const never = new Promise<never>(() => {});

export async function useEmbedded(dataDir: string, wish: EmbeddedWish, logger: Logger): Promise<EmbeddedUse> {
  const deadline = Date.now() + patienceMs[wish];
  for (;;) {
    if (wish === 'join') {
      const running = await visit(dataDir);
      if (running) return { ...running, started: false, lost: never };
    }
    try {
      return await startOwn(dataDir, wish, logger);
    } catch (error) {
      if (!(error instanceof TallymanError) || error.code !== 'EMBEDDED_IN_USE') throw error;
      const running = wish === 'either' && Date.now() >= deadline ? await visit(dataDir) : undefined;
      if (running) return stay(running, logger);
      if (Date.now() >= deadline + (wish === 'either' ? patienceMs.join : 0)) throw error;
      await sleep(100);
    }
  }
}

/** Uses another owner's server, and starts one if there is none. */
function stay(first: Visit, logger: Logger): EmbeddedUse {
  const { dataDir, port } = first;
  const lost = Promise.withResolvers<TallymanError>();
  let current: Pick<EmbeddedUse, 'close'> = first;
  let closing = false;
  let regaining = Promise.resolve();

  const watch = (visit: Visit): void => {
    current = visit;
    void visit.gone.then(() => {
      if (!closing) regaining = regain().catch((error) => lost.resolve(lostServer(dataDir, error)));
    });
  };
  const regain = async (): Promise<void> => {
    let said = false;
    for (const deadline = Date.now() + regainMs; !closing; await sleep(100)) {
      const running = await visit(dataDir);
      if (running?.port === port) {
        if (said)
          logger.info({ dataDir, port }, 'another process has started the embedded PostgreSQL; using it');
        return watch(running);
      }
      if (!said)
        logger.warn(
          { dataDir },
          'the embedded PostgreSQL, which another process ran, is gone; starting it here',
        );
      said = true;
      await running?.close();
      try {
        current = await startOwn(dataDir, 'either', logger, port);
        return;
      } catch (error) {
        const { code } = error as TallymanError;
        // It is still stopping, or another process is starting it; any program may also hold the port for a moment.
        const passing = code === 'EMBEDDED_IN_USE' || code === 'EMBEDDED_PORT_IN_USE';
        if (!passing || Date.now() > deadline) throw error;
      }
    }
  };

  watch(first);
  return {
    url: first.url,
    port,
    dataDir,
    started: false,
    lost: lost.promise,
    close: async () => {
      closing = true;
      await regaining;
      await current.close();
    },
  };
}

const lostServer = (dataDir: string, cause: unknown): TallymanError =>
  new TallymanError(
    'EMBEDDED_LOST',
    `The embedded PostgreSQL in ${dataDir}, which another process ran, is gone, and this process cannot start it. ` +
      `Remove the cause and start this process again; committed work is safe. The cause: ${messageOf(cause)}`,
    { cause, details: { dataDir } },
  );

async function startOwn(
  dataDir: string,
  wish: EmbeddedWish,
  logger: Logger,
  port?: number,
): Promise<EmbeddedUse> {
  // Import late: with a DATABASE_URL the binaries need not be installed.
  const { startEmbedded } = await import('../../engine/database/embedded/index.ts');
  const first = await access(join(dataDir, 'data')).then(
    () => false,
    () => true,
  );
  const server = await startEmbedded({ dataDir, logger, ...(port !== undefined && { port }) });
  // Warn: a user who only forgot to set it would not find their jobs here.
  if (first && wish === 'join')
    logger.warn({ dataDir }, 'DATABASE_URL is not set: created an embedded PostgreSQL');
  return {
    url: server.url,
    port: server.port,
    dataDir,
    started: true,
    lost: never,
    close: async () => {
      await guestsGone(server, guestsMs[wish]);
      await server.stop();
    },
  };
}

/** Joins the server that runs in this folder, if there is one and it accepts our login. */
export async function visit(dataDir: string): Promise<Visit | undefined> {
  try {
    const folder = await realpath(dataDir);
    // The server's own file says where it listens, and that it is ready. O_NOFOLLOW: the folder belongs to the server's
    // account, and a link in it must not lead root elsewhere.
    const file = await open(
      join(folder, 'data', 'postmaster.pid'),
      constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0),
    );
    const lines = (await file.readFile('utf8').finally(() => file.close())).split('\n');
    const port = Number(lines[3]);
    if (!(port > 0) || lines[7]?.trim() !== 'ready') return undefined;
    const password = (await readFile(join(folder, 'password'), 'utf8')).trim();
    const url = `postgres://tallyman:${encodeURIComponent(password)}@127.0.0.1:${port}/tallyman`;
    const guest = await checkIn(url);
    if (!guest) return undefined;
    const gone = new Promise<void>((resolve) => guest.once('end', resolve));
    return { url, port, dataDir, gone, close: () => guest.end().catch(() => {}) };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    if (code !== 'EACCES' && code !== 'EPERM') throw error;
    throw new TallymanError(
      'EMBEDDED_NOT_YOURS',
      `The embedded PostgreSQL in ${dataDir} belongs to another user (${messageOf(error)}). Run this as that user, or set DATABASE_URL.`,
      { cause: error },
    );
  }
}

/**
 * Guests hold a shared lock; the process that stops the server takes it exclusively. So the owner waits for a guest, or the
 * guest waits until the server has gone and looks again: no guest is let in and then disconnected.
 *
 * A file left behind by a crash names a port that another program may have by now. SCRAM authenticates both sides: another
 * program neither accepts our password nor learns it.
 */
async function checkIn(url: string): Promise<pg.Client | undefined> {
  const client = new pg.Client({ connectionString: url, ssl: false, connectionTimeoutMillis: 3_000 });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('select pg_advisory_lock_shared($1)', [guestLock]);
    return client;
  } catch {
    await client.end().catch(() => {});
    return undefined;
  }
}

async function guestsGone(server: EmbeddedPostgres, limitMs: number): Promise<void> {
  const client = new pg.Client({ connectionString: server.url, ssl: false });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query(`select set_config('lock_timeout', $1, false)`, [`${limitMs}ms`]);
    await client.query('select pg_advisory_lock($1)', [guestLock]);
  } catch {
    // The server will be stopped anyway. The lock, if we have it, ends with the server.
  }
}
