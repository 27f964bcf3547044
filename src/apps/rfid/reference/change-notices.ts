import type { Database } from '../../../engine/database/database.ts';
import { listen } from '../../../engine/database/listen.ts';
import {
  defaultConnectTimeoutMs,
  defaultReconnect,
  Link,
  type LinkStatus,
  type Session,
} from '../../../engine/resilience/link.ts';
import { Outage } from '../../../engine/resilience/outage.ts';

/** Sent by triggers on `iot.devices` and `iot.locations`. */
const channel = 'iot_reference';

/**
 * Calls `onChange` when reference data has changed, by LISTEN on its own connection. Also after each reconnect, because
 * notices sent meanwhile were lost.
 */
export class ChangeNotices {
  readonly #link: Link<Session>;

  constructor(database: Database, onChange: () => void) {
    this.#link = new Link({
      connect: async (signal) => {
        const options = {
          applicationName: 'tallyman reference data',
          channels: [channel],
          onNotification: onChange,
        };
        const session = await listen(database, options, signal);
        onChange();
        return session;
      },
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

  status(): LinkStatus {
    return this.#link.status();
  }
}
