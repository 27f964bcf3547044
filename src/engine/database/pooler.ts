import type pg from 'pg';
import { within } from '../resilience/deadline.ts';
import type { Database } from './database.ts';
import { announcedPid } from './session.ts';

/**
 * What sits between us and the server.
 *
 * `none`         a connection is a session
 * `session`      a pooler that lends each connection one session for as long as it lasts: as good as none
 * `transaction`  a pooler that lends a session for one transaction (or statement): session advisory locks, LISTEN,
 *                SET and prepared statements land in sessions that somebody else uses next
 */
export type Pooler = 'none' | 'session' | 'transaction';

/** A pooler with no session to spare lets us wait; that too is an answer. */
const patienceMs = 5_000;
const probe = 'tallyman pooler probe';

/**
 * Finds a pooler by what it does, not by its name. Two signs:
 *
 * the pid that the handshake announced is not the one of the session that answers: something sits between;
 * our session changes while another connection has a transaction open: it was not ours.
 */
export async function detectPooler(database: Database): Promise<Pooler> {
  const ours = await database.dedicated(probe);
  const connecting = database.dedicated(probe);
  try {
    const before = await sessionOf(ours);
    const otherwise: Pooler = announcedPid(ours) === before ? 'none' : 'session';
    const begun = await inTime(connecting.then(takesTransaction));
    // No session left for the other one: ours is kept for us.
    if (begun === undefined) return otherwise;
    // Statement pooling refuses transactions of several statements.
    if (!begun) return 'transaction';
    const after = await inTime(sessionOf(ours));
    return after === before ? otherwise : 'transaction';
  } finally {
    // The other one may still be waiting for a session; it is not waited for.
    void connecting.then((other) => other.end()).catch(() => {});
    await ours.end();
  }
}

export async function sessionOf(client: pg.Client): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid;
}

/** Begins one and stays in it, so that whatever serves this client is taken. */
async function takesTransaction(client: pg.Client): Promise<boolean> {
  try {
    await client.query('begin');
    await client.query('select 1');
    return true;
  } catch {
    return false;
  }
}

/** Undefined when there is no answer in time, or none at all. */
const inTime = <T>(answer: Promise<T>): Promise<T | undefined> =>
  within(answer, patienceMs).catch(() => undefined);
