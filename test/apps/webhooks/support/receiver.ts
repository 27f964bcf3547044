import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export interface Receiver {
  readonly url: string;
  readonly port: number;
  readonly requests: Received[];
}

export type Reply = (request: Received, response: ServerResponse, nth: number) => void;

export const ok: Reply = (_request, response) => void response.end('thanks');
export const status =
  (code: number, headers: Record<string, string> = {}): Reply =>
  (_request, response) =>
    void response.writeHead(code, headers).end(`status ${code}`);

/** A receiver on this machine. It writes down each request before it replies. */
export async function receiver(reply: Reply = ok): Promise<Receiver> {
  const requests: Received[] = [];
  const server = createServer((request, response) => {
    void bodyOf(request).then((body) => {
      const received = {
        method: request.method ?? '',
        path: request.url ?? '',
        headers: request.headers as Record<string, string>,
        body,
      };
      requests.push(received);
      reply(received, response, requests.length);
    });
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/hook`, port, requests };
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
