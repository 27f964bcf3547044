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

/** A pooler without a free session makes us wait. No answer within this time is a sign, too. */
const answerTimeoutMs = 5_000;
const probe = 'tallyman pooler probe';

/** How often two connections are asked for their sessions: one look can be deceived by others who use the pool at that moment. */
const looks = 5;

/**
 * Finds a pooler by what it does, not by its name. Three signs:
 *
 * the pid that the handshake announced is not the one of the session that answers: something sits between;
 * two connections answer from one session, or one of them from two: no session is theirs;
 * our session changes while another connection has a transaction open: it was not ours.
 */
export async function detectPooler(database: Database): Promise<Pooler> {
  const ours = await database.dedicated(probe);
  const connecting = database.dedicated(probe);
  try {
    const before = await sessionOf(ours);
    const otherwise: Pooler = announcedPid(ours) === before ? 'none' : 'session';
    if (otherwise === 'session') {
      const shared = await inTime(connecting.then((other) => areShared(ours, other)));
      // No session left for the other one: ours is kept for us.
      if (shared === undefined) return otherwise;
      if (shared) return 'transaction';
    }
    const begun = await inTime(connecting.then(takesTransaction));
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

async function sessionOf(client: pg.Client): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid;
}

async function areShared(ours: pg.Client, other: pg.Client): Promise<boolean> {
  const [first, second] = [await sessionOf(ours), await sessionOf(other)];
  for (let look = 1; look < looks && first !== second; look += 1)
    if ((await sessionOf(ours)) !== first || (await sessionOf(other)) !== second) return true;
  return first === second;
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
  within(answer, answerTimeoutMs).catch(() => undefined);
