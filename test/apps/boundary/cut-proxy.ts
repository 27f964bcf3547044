import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** Stands before a port of this machine, and counts what crosses. Each connection ends after `perConnection` bytes. */
export class CutProxy {
  bytes = 0;
  cuts = 0;
  readonly port: number;
  readonly #perConnection: number;

  static async before(port: number, perConnection: number): Promise<CutProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const address = server.address();
    const proxy = new CutProxy(typeof address === 'object' ? (address?.port ?? 0) : 0, perConnection);
    server.on('connection', (client) => proxy.#carry(client, connect(port, '127.0.0.1')));
    return proxy;
  }

  private constructor(port: number, perConnection: number) {
    this.port = port;
    this.#perConnection = perConnection;
  }

  #carry(client: Socket, server: Socket): void {
    let left = this.#perConnection;
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.setNoDelay().on('error', () => {});
      from.on('close', () => to.destroySoon());
      from.on('data', (chunk) => {
        if (left <= 0) return;
        left -= chunk.length;
        this.bytes += chunk.length;
        // Of what has come so far nothing is lost: it was sent.
        if (!to.write(chunk)) {
          from.pause();
          to.once('drain', () => from.resume());
        }
        if (left > 0) return;
        this.cuts += 1;
        client.destroySoon();
        server.destroySoon();
      });
    }
  }
}
