import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** A way to the database that can be shut, as if the machine were off, and opened again at the same address. */
export class Gate {
  readonly url: string;
  readonly #target: URL;
  readonly #port: number;
  readonly #sockets = new Set<Socket>();
  #server: Server;

  static async before(url: string): Promise<Gate> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const gate = new Gate(url, server);
    onTestFinished(() => gate.shut());
    return gate;
  }

  private constructor(url: string, server: Server) {
    const address = server.address();
    this.#port = typeof address === 'object' && address ? address.port : 0;
    this.#target = new URL(url);
    const front = new URL(url);
    front.hostname = '127.0.0.1';
    front.port = String(this.#port);
    this.url = front.toString();
    this.#server = server;
    this.#serve();
  }

  shut(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  async open(): Promise<void> {
    this.#server = createServer().listen(this.#port, '127.0.0.1');
    this.#serve();
    await once(this.#server, 'listening');
  }

  #serve(): void {
    this.#server.on('connection', (client) => {
      const upstream = connect(Number(this.#target.port || 5432), this.#target.hostname);
      for (const socket of [client, upstream]) {
        this.#sockets.add(socket);
        socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket));
      }
      client.pipe(upstream).pipe(client);
    });
  }
}
