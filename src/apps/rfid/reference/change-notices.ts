import type { Database } from '../../../engine/database/database.ts';
import {
  defaultConnectTimeoutMs,
  defaultReconnect,
  Link,
  Outage,
  type Session,
} from '../../../engine/wakeups/reconnect.ts';
import type { WakeupStatus } from '../../../engine/wakeups/wakeup.ts';

/** Told by triggers on `iot.devices` and `iot.locations`. */
const channel = 'iot_reference';

/**
 * Calls `onChange` when reference data has changed, by LISTEN on a connection of its own. Also whenever that connection
 * is made anew: what was told while nobody listened is unknown.
 */
export class ChangeNotices {
  readonly #link: Link<Session>;

  constructor(database: Database, onChange: () => void) {
    this.#link = new Link({
      connect: (signal) => listen(database, onChange, signal),
      outage: new Outage(
        database.logger,
        { channel },
        {
          down: 'notices of changed devices are lost; what is kept in memory expires by itself',
          up: 'notices of changed devices are back',
        },
      ),
      reconnect: defaultReconnect,
      connectTimeoutMs: defaultConnectTimeoutMs,
    });
  }

  start(): Promise<void> {
    return this.#link.start();
  }

  stop(): Promise<void> {
    return this.#link.stop();
  }

  status(): WakeupStatus {
    return this.#link.status();
  }
}

async function listen(database: Database, onChange: () => void, signal: AbortSignal): Promise<Session> {
  const client = await database.dedicated('tallyman reference data', { isListener: true });
  const { promise: ended, resolve } = Promise.withResolvers<string>();
  client.once('end', () => resolve('connection closed'));
  signal.addEventListener('abort', () => void client.end().catch(() => {}), { once: true });
  client.on('notification', onChange);
  await client.query(`listen ${channel}`);
  onChange();
  return { ended, close: () => client.end() };
}
