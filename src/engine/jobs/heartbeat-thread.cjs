// A script without modules, run from its text, and the driver is loaded only when it is time: a worker that starts has
// better things to do with its processors than to prepare for a renewal that is half a minute away.
const { setTimeout: sleep } = require('node:timers/promises');
const { parentPort, workerData } = require('node:worker_threads');

/** @type {import('./heartbeat.ts').HeartbeatOptions & { tick: BigInt64Array, driver: string }} */
const options = workerData;

/** @param {import('./heartbeat.ts').HeartbeatMessage} message */
const say = (message) => parentPort?.postMessage(message);

/** @type {import('pg').Client | undefined} */
let client;

async function connected() {
  if (!client) {
    /** @type {typeof import('pg')} */
    const pg = require(options.driver);
    const fresh = new pg.Client({ ...options.connection, application_name: 'tallyman heartbeat' });
    fresh.on('error', () => {
      if (client === fresh) client = undefined;
    });
    await fresh.connect();
    client = fresh;
  }
  return client;
}

async function renew() {
  const startedAt = Date.now();
  const { rows } = await (await connected()).query('select tallyman.renew($1, $2, $3) as token', [
    options.worker,
    options.leaseMs,
    options.staleMs,
  ]);
  say({ kind: 'renewed', startedAt, tokens: rows.map((row) => row.token) });
}

async function beat() {
  await sleep(options.warmUpMs);
  await connected().catch(() => {});
  say({ kind: 'ready' });

  let gaveUp = false;
  for (;;) {
    await sleep(options.renewMs);
    const blockedMs = Date.now() - Number(Atomics.load(options.tick, 0));
    if (blockedMs > options.blockedMs) {
      if (!gaveUp) say({ kind: 'gave-up', blockedMs });
      gaveUp = true;
      continue;
    }
    gaveUp = false;
    // A lease outlives several missed rounds, so a failed one is tried again soon and often.
    for (let wait = 100; ; wait = Math.min(wait * 2, options.renewMs / 2)) {
      try {
        await renew();
        break;
      } catch (error) {
        client?.end().catch(() => {});
        client = undefined;
        say({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) });
        await sleep(wait);
      }
    }
  }
}

beat();
