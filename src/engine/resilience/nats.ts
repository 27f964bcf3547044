/** What connections to NATS have in common. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { TallymanError } from '../errors.ts';

export interface NatsServers {
  /** `nats://host:port`, free of credentials: the client ignores them there. */
  readonly addresses: readonly string[];
  readonly tls: boolean;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly token: string | undefined;
}

/** `nats://host:port`, `tls://host:port` or `host:port`; `user:password@` or `token@` may go before the host. */
export function readNatsServers(servers: string | readonly string[], name: string): NatsServers {
  const list = typeof servers === 'string' ? servers.split(',') : servers;
  const urls = list.map((server) => {
    const text = server.trim();
    const url = text.includes('://') ? text : `nats://${text}`;
    if (
      !URL.canParse(url) ||
      !['nats:', 'tls:'].includes(new URL(url).protocol) ||
      new URL(url).host === ''
    ) {
      throw new TallymanError('INVALID_OPTION', `${name} must be of the form nats://user:password@host:port`);
    }
    return new URL(url);
  });
  const named = urls.find((url) => url.username !== '');
  const user = named === undefined ? undefined : decodeURIComponent(named.username);
  const password =
    named === undefined || named.password === '' ? undefined : decodeURIComponent(named.password);
  return {
    addresses: urls.map((url) => `nats://${url.host}`),
    tls: urls.some((url) => url.protocol === 'tls:'),
    user: password === undefined ? undefined : user,
    password,
    token: password === undefined ? user : undefined,
  };
}

const dialling = new AsyncLocalStorage<(socket: Socket) => void>();

/**
 * Destroys the sockets that `dial` opens once the signal fires. The client forgets, but does not close,
 * a socket whose server accepts it and then says nothing (a frozen server): each attempt would leave one
 * open, and the last would keep the process alive after stop().
 */
export async function cutOnAbort<T>(signal: AbortSignal, dial: () => Promise<T>): Promise<T> {
  const sockets: Socket[] = [];
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  const onSocket = (message: unknown): void => dialling.getStore()?.((message as { socket: Socket }).socket);
  signal.addEventListener('abort', cut, { once: true });
  subscribe('net.client.socket', onSocket);
  try {
    return await dialling.run((socket) => {
      sockets.push(socket);
      if (signal.aborted) cut();
    }, dial);
  } finally {
    unsubscribe('net.client.socket', onSocket);
  }
}
