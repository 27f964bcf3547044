// A script without modules, run from its text, and the driver is loaded only when it is time: a worker that starts
// needs its processors for the backlog, and the first renewal is half a minute away.
const { setTimeout: sleep } = require('node:timers/promises');
const { parentPort, workerData } = require('node:worker_threads');

/** @type {import('./heartbeat.ts').ThreadOptions} */
const options = workerData;

/**
 * If no answer comes within this time the connection is given up, so that the next try is on a fresh one. Half of
 * the time between two renewals leaves the other half of the lease for that try.
 */
const answerMs = Math.max(500, Math.min(options.renewMs / 2, 5000));
/** Waits between two tries. After an outage the worker is back within the longest of them. */
const firstRetryMs = 100;
const longestRetryMs = 400;

/** @param {import('./heartbeat.ts').HeartbeatMessage} message */
const say = (message) => parentPort?.postMessage(message);

/** @type {import('pg').Client | undefined} */
let client;
/** Ends the wait for the next round. */
let lost = new AbortController();

/** The connection, opened when there is none. Statements that every fresh connection needs belong in here. */
async function connected() {
  if (client) return client;
  /** @type {typeof import('pg')} */
  const pg = require(options.driver);
  const { session, ...connection } = options.connection;
  const fresh = new pg.Client({
    ...connection,
    application_name: 'tallyman heartbeat',
    connectionTimeoutMillis: answerMs,
  });
  const onLost = () => {
    if (client !== fresh) return;
    client = undefined;
    lost.abort();
  };
  fresh.on('error', onLost);
  fresh.on('end', onLost);
  try {
    await fresh.connect();
    const { processID } = /** @type {import('pg').Client & { processID: number | null }} */ (fresh);
    await answered(fresh, fresh.query(session.text, [processID, session.isSessionPooled]));
    if (options.present)
      await answered(fresh, fresh.query(options.present.text, [...options.present.values]));
  } catch (error) {
    destroy(fresh, error);
    throw error;
  }
  lost = new AbortController();
  client = fresh;
  return fresh;
}

/**
 * The answer, or an error when it does not come in time. A half-open connection never reports anything by itself.
 *
 * @template T
 * @param {import('pg').Client} on
 * @param {Promise<T>} answer
 * @returns {Promise<T>}
 */
async function answered(on, answer) {
  const timer = setTimeout(() => {
    const error = new Error(`PostgreSQL sent no answer for ${answerMs} ms`);
    destroy(on, Object.assign(error, { code: 'ETIMEDOUT' }));
  }, answerMs);
  try {
    return await answer;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Not `end`, which waits for the server to close its side. The driver's types do not know the socket.
 *
 * @param {import('pg').Client} broken
 * @param {unknown} error
 */
function destroy(broken, error) {
  if (client === broken) client = undefined;
  /** @type {import('pg').Client & { connection: { stream: import('node:net').Socket } }} */ (
    broken
  ).connection.stream.destroy(error instanceof Error ? error : undefined);
}

async function renew() {
  const startedAt = Date.now();
  const on = await connected();
  try {
    const { rows } = await answered(on, on.query(options.renew.text, [...options.renew.values]));
    say({ kind: 'renewed', startedAt, tokens: rows.map((row) => row.answer) });
  } catch (error) {
    destroy(on, error);
    throw error;
  }
}

/** Waits for the next round; a lost connection brings it forward, so that a fresh one is there soon. */
async function untilNextRound() {
  await sleep(options.renewMs, undefined, { signal: lost.signal }).catch(() => {});
}

async function beat() {
  await sleep(options.warmUpMs);
  // Without a connection there is no reason to wait for the first round.
  await connected().catch(() => lost.abort());
  say({ kind: 'ready' });

  let gaveUp = false;
  for (;;) {
    await untilNextRound();
    const blockedMs = Date.now() - Number(Atomics.load(options.tick, 0));
    if (blockedMs > options.blockedMs) {
      if (!gaveUp) say({ kind: 'gave-up', blockedMs });
      gaveUp = true;
      // The wait must not end at once again, for the same loss.
      lost = new AbortController();
      continue;
    }
    gaveUp = false;
    // A lease outlives several missed rounds, so a failed one is tried again soon and often.
    for (let waitMs = firstRetryMs; ; waitMs = Math.min(waitMs * 1.5, longestRetryMs)) {
      try {
        await renew();
        break;
      } catch (error) {
        say({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) });
        await sleep(waitMs);
      }
    }
  }
}

beat();
