import type { Notification } from 'pg';
import type { Session } from '../resilience/link.ts';
import type { Database } from './database.ts';

export interface ListenOptions {
  readonly applicationName: string;
  readonly channels: readonly string[];
  readonly onNotification: (notification: Notification) => void;
}

export interface ListenSession extends Session {
  /** A statement on the session's own connection, such as for its advisory locks. */
  query(text: string): Promise<unknown>;
}

/** A session of LISTEN on a connection of its own, for a `Link` to keep open. */
export async function listen(
  database: Database,
  { applicationName, channels, onNotification }: ListenOptions,
  signal: AbortSignal,
): Promise<ListenSession> {
  const client = await database.dedicated(applicationName, { isListener: true });
  const cut = (): void => void client.end().catch(() => {});
  const ended = Promise.withResolvers<string>();
  client.once('end', () => ended.resolve('connection closed'));
  client.on('notification', onNotification);
  // The link may have given up while we were connecting.
  if (signal.aborted) cut();
  signal.addEventListener('abort', cut, { once: true });
  await client.query(channels.map((channel) => `listen ${channel}`).join('; '));
  return { ended: ended.promise, close: () => client.end(), query: (text) => client.query(text) };
}
