import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

/** Stands before a gateway and keeps images back: while `isHolding` is set they come no further, until `release`. */
export class HoldingProxy {
  readonly url: string;
  isHolding = false;
  /** Images that are kept back. */
  held = 0;
  readonly #released = Promise.withResolvers<void>();

  static async before(gatewayUrl: string): Promise<HoldingProxy> {
    const server = createServer();
    await new Promise<void>((listening) => void server.listen(0, '127.0.0.1', listening));
    onTestFinished(() => {
      server.close();
      server.closeAllConnections();
    });
    const proxy = new HoldingProxy(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    server.on('request', async (request, response) => {
      response.on('error', () => {});
      try {
        const body = await bodyOf(request);
        await proxy.#pass(request.url ?? '/');
        const { authorization, 'content-type': type } = request.headers;
        const answer = await fetch(`${gatewayUrl}${request.url}`, {
          method: request.method ?? 'GET',
          headers: { ...(authorization && { authorization }), ...(type && { 'content-type': type }) },
          ...(body.length > 0 && { body: new Uint8Array(body) }),
        });
        response.writeHead(answer.status, {
          'content-type': answer.headers.get('content-type') ?? 'application/json',
        });
        response.end(Buffer.from(await answer.arrayBuffer()));
      } catch {
        response.destroy();
      }
    });
    return proxy;
  }

  private constructor(url: string) {
    this.url = url;
  }

  /** What was kept back arrives. */
  release(): void {
    this.#released.resolve();
  }

  async #pass(path: string): Promise<void> {
    if (!this.isHolding || !path.includes('/labels/image')) return;
    this.held += 1;
    await this.#released.promise;
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}
