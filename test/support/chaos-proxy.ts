import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

interface Line {
  readonly client: Socket;
  readonly server: Socket;
  /** The start-up packet, which holds the application's name. */
  startup: string;
  isFrozen: boolean;
}

/**
 * Stands between a client and PostgreSQL: cuts or freezes connections, and counts what is asked.
 *
 * A cut is heard by the client alone. The server has received what was sent, goes on with it, and commits it: the
 * client saw an error, and the commit succeeded.
 *
 * A frozen connection stays open and carries nothing any more, in either direction. New connections work.
 */
export class ChaosProxy {
  readonly url: string;
  /** Statements that clients have sent. */
  statements = 0;
  readonly #server: Server;
  readonly #lines = new Set<Line>();

  static async before(url: string): Promise<ChaosProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const proxy = new ChaosProxy(url, server);
    onTestFinished(() => proxy.#close());
    return proxy;
  }

  private constructor(url: string, server: Server) {
    this.#server = server;
    const target = new URL(url);
    const address = server.address();
    const front = new URL(url);
    front.hostname = '127.0.0.1';
    front.port = String(typeof address === 'object' ? address?.port : '');
    this.url = front.toString();
    server.on('connection', (client) => {
      const upstream = connect(Number(target.port || 5432), target.hostname);
      const line: Line = { client, server: upstream, startup: '', isFrozen: false };
      this.#lines.add(line);
      for (const socket of [client, upstream]) socket.setNoDelay().on('error', () => {});
      const count = statementCounter(() => {
        this.statements += 1;
      });
      client.on('data', (chunk: Buffer) => {
        line.startup ||= chunk.toString('latin1');
        if (line.isFrozen) return;
        count(chunk);
        upstream.write(chunk);
      });
      upstream.on('data', (chunk: Buffer) => {
        if (!client.destroyed && !line.isFrozen) client.write(chunk);
      });
      upstream.on('close', () => {
        this.#lines.delete(line);
        client.destroy();
      });
      // A cut leaves the server's side open for a moment, as a broken network would.
      // A frozen one tells the server nothing.
      client.on('close', () => {
        if (!line.isFrozen) setTimeout(() => upstream.destroy(), 300).unref();
      });
    });
  }

  /** Cuts each open connection with this probability. Answers how many. */
  cut(probability: number, random: () => number): number {
    let cuts = 0;
    for (const { client } of this.#lines)
      if (!client.destroyed && random() < probability) {
        client.resetAndDestroy();
        cuts += 1;
      }
    return cuts;
  }

  /** Freezes the connections that are open now, or those of one application. Returns how many. */
  freeze(applicationName = ''): number {
    let frozen = 0;
    for (const line of this.#lines) {
      if (line.client.destroyed || line.isFrozen || !line.startup.includes(applicationName)) continue;
      line.isFrozen = true;
      frozen += 1;
    }
    return frozen;
  }

  async #close(): Promise<void> {
    for (const { client, server } of this.#lines) {
      client.destroy();
      server.destroy();
    }
    this.#server.close();
  }
}

/** Reads the frontend's messages: the start-up packet has no type; then a type, a length, a body. */
function statementCounter(onStatement: () => void): (chunk: Buffer) => void {
  let started = false;
  let rest: Buffer<ArrayBufferLike> = Buffer.alloc(0);
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      const head = started ? 5 : 4;
      if (rest.length < head) return;
      const length = rest.readInt32BE(head - 4) + head - 4;
      if (rest.length < length) return;
      // Q: a simple query; E: the execution of a prepared one.
      if (started && (rest[0] === 0x51 || rest[0] === 0x45)) onStatement();
      started = true;
      rest = rest.subarray(length);
    }
  };
}
