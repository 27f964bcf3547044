import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Logger } from '../engine/logger.ts';

/** Closes connections beyond `most` at once, and says so in the log, once a minute. */
export function limitConnections(server: Server, most: number, logger: Logger): void {
  server.maxConnections = most;
  let told = Number.NEGATIVE_INFINITY;
  server.on('drop', () => {
    if (performance.now() - told < 60_000) return;
    told = performance.now();
    logger.warn(
      { maxConnections: most },
      'too many connections: new ones are closed (server.maxConnections)',
    );
  });
}

/** An answer may stand still for so long, and longer by what a slow line needs for the rest. */
const patienceMs = 120_000;
const slowestBytesPerMs = 8;

/**
 * Closes connections whose answers nobody reads: what is not sent stays in memory. Requests that take long are not touched, as
 * nothing waits to be sent for them.
 *
 * Time-outs of sockets are not enough: a byte that comes in starts them again.
 */
export class UnreadAnswers {
  /** When each was last seen to send something, and how much it had sent by then. */
  readonly #connections = new Map<Socket, { readonly sent: number; readonly since: number }>();

  constructor(server: Server) {
    server.on('request', ({ socket }) => {
      if (this.#connections.has(socket)) return;
      this.#connections.set(socket, { sent: 0, since: performance.now() });
      socket.once('close', () => this.#connections.delete(socket));
    });
  }

  /** Called every few seconds. */
  close(now = performance.now()): void {
    for (const [socket, last] of this.#connections) {
      // `bytesWritten` counts what was written to the socket, sent or not; a write counts as sent when all of it is.
      const unsent = socket.writableLength;
      const sent = socket.bytesWritten - unsent;
      if (unsent === 0 || sent !== last.sent) this.#connections.set(socket, { sent, since: now });
      else if (now - last.since > patienceMs + unsent / slowestBytesPerMs) socket.destroy();
    }
  }
}

/**
 * Connections on which nothing was asked yet: browsers and pools open some ahead. A server that closes would wait a minute for
 * their first request.
 */
export class SilentConnections {
  readonly #silent = new Set<Socket>();
  #isOver = false;

  constructor(server: Server) {
    const isTls = server instanceof TlsServer;
    server.on(isTls ? 'secureConnection' : 'connection', (connection: Socket) => {
      // Its handshake ended while the server stopped.
      if (this.#isOver) connection.destroy();
      this.#silent.add(connection);
      connection.once('close', () => this.#silent.delete(connection));
    });
    server.on('request', ({ socket }) => this.#silent.delete(socket));
  }

  end(): void {
    this.#isOver = true;
    for (const connection of this.#silent) connection.destroy();
  }
}
