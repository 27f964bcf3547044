import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/**
 * Stands between a client and PostgreSQL and reads what the client sends.
 *
 * - `delayListenMs`: what the server sends on a connection that has said LISTEN arrives so much later.
 * - `cutAfter(text)`: the next connection whose client sends this text is cut once the server has received it. The
 *   server goes on and commits; the client sees an error.
 * - `holdCommitAfter(text)`: of a connection whose client has sent this text, COMMIT is kept back, with all behind it,
 *   until `release`. The transaction is open on the server, and all of its other statements have run.
 */
export class WiretapProxy {
  readonly url: string;
  delayListenMs = 0;
  cuts = 0;
  /** Connections whose COMMIT is kept back. */
  held = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #cutAfter = new Set<string>();
  #holdAfter: string | undefined;
  readonly #release = new Set<() => void>();

  static async before(url: string): Promise<WiretapProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const proxy = new WiretapProxy(url, server);
    onTestFinished(() => {
      for (const socket of proxy.#sockets) socket.destroy();
      server.close();
    });
    return proxy;
  }

  cutAfter(text: string): void {
    this.#cutAfter.add(text);
  }

  holdCommitAfter(text: string): void {
    this.#holdAfter = text;
  }

  /** Passes on what was kept back; nothing more is kept back from now on. */
  release(): void {
    this.#holdAfter = undefined;
    for (const release of this.#release) release();
    this.#release.clear();
  }

  private constructor(url: string, server: Server) {
    this.#server = server;
    const target = new URL(url);
    const address = server.address();
    const front = new URL(url);
    front.hostname = '127.0.0.1';
    front.port = String(typeof address === 'object' ? address?.port : '');
    this.url = front.toString();
    this.#server.on('connection', (client) =>
      this.#carry(client, connect(Number(target.port || 5432), target.hostname)),
    );
  }

  #carry(client: Socket, upstream: Socket): void {
    let listens = false;
    // The end of the last chunk, in case a text is split over two.
    let tail = '';
    for (const socket of [client, upstream]) {
      this.#sockets.add(socket);
      socket.setNoDelay().on('error', () => {});
    }
    const forward = this.#forward(upstream);
    client.on('data', (chunk: Buffer) => {
      const text = tail + chunk.toString('latin1');
      tail = text.slice(-200);
      listens ||= /\blisten\b/i.test(text);
      const found = [...this.#cutAfter].find((wanted) => text.includes(wanted));
      if (found === undefined) {
        forward(chunk);
        return;
      }
      this.#cutAfter.delete(found);
      this.cuts += 1;
      // Cut only when the server has all of it; nothing that it answers reaches the client.
      upstream.write(chunk, () => setTimeout(() => client.resetAndDestroy(), 20));
      upstream.removeAllListeners('data').on('data', () => {});
    });
    const deliver = (chunk: Buffer): void => {
      if (!client.destroyed) client.write(chunk);
    };
    upstream.on('data', (chunk: Buffer) => {
      // Timers of one length keep their order.
      if (listens && this.delayListenMs > 0) setTimeout(deliver, this.delayListenMs, chunk);
      else deliver(chunk);
    });
    upstream.on('close', () => {
      client.destroy();
      this.#sockets.delete(upstream);
      this.#sockets.delete(client);
    });
    // A cut leaves the server's side open for a moment, as a broken network would.
    client.on('close', () => setTimeout(() => upstream.destroy(), 500).unref());
  }

  /** Passes chunks on, except from a message that ends with a COMMIT that is to be kept back. */
  #forward(upstream: Socket): (chunk: Buffer) => void {
    const messages = messageReader();
    let isMarked = false;
    let kept: Buffer[] | undefined;
    return (chunk) => {
      if (kept) {
        kept.push(chunk);
        return;
      }
      const read = messages(chunk);
      const at = read.findIndex(({ text }) => {
        isMarked ||= this.#holdAfter !== undefined && text.includes(this.#holdAfter);
        return isMarked && this.#holdAfter !== undefined && /\bcommit\b[^a-z]*$/i.test(text);
      });
      if (at < 0) {
        upstream.write(chunk);
        return;
      }
      // From the message's first byte on; one that began in an earlier chunk is short enough not to.
      const from = Math.max(0, read[at]?.from ?? 0);
      upstream.write(chunk.subarray(0, from));
      const waiting = [chunk.subarray(from)];
      kept = waiting;
      this.held += 1;
      this.#release.add(() => {
        kept = undefined;
        for (const part of waiting) if (!upstream.destroyed) upstream.write(part);
      });
    };
  }
}

/**
 * Splits what a client sends into messages: the start-up packet has no type; then a type, a length, a body. Answers
 * those that end in this chunk, each with the place in the chunk where it began (negative: in an earlier one).
 */
function messageReader(): (chunk: Buffer) => { readonly text: string; readonly from: number }[] {
  let isStarted = false;
  let rest: Buffer<ArrayBufferLike> = Buffer.alloc(0);
  return (chunk) => {
    let from = -rest.length;
    rest = Buffer.concat([rest, chunk]);
    const found: { text: string; from: number }[] = [];
    for (;;) {
      const head = isStarted ? 5 : 4;
      if (rest.length < head) return found;
      const length = rest.readInt32BE(head - 4) + head - 4;
      if (rest.length < length) return found;
      if (isStarted) found.push({ text: rest.toString('latin1', 0, Math.min(length, 2000)), from });
      isStarted = true;
      from += length;
      rest = rest.subarray(length);
    }
  };
}
