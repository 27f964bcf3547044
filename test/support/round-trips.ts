import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { onTestFinished } from 'vitest';

/** Stands between a client and PostgreSQL and counts round trips: how often the client speaks after the server has. */
export interface RoundTrips {
  readonly url: string;
  /** On all connections, since the last `reset`. Start-up is not counted. */
  count(): number;
  reset(): void;
}

export async function roundTrips(url: string): Promise<RoundTrips> {
  const target = new URL(url);
  const front = new URL(url);
  let count = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(target.port || 5432), target.hostname);
    let isClientsTurn = true;
    for (const socket of [client, upstream]) socket.setNoDelay().on('error', () => {});
    client.on('data', (chunk) => {
      if (isClientsTurn) count += 1;
      isClientsTurn = false;
      upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      isClientsTurn = true;
      client.write(chunk);
    });
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  front.hostname = '127.0.0.1';
  front.port = String(typeof address === 'object' ? address?.port : '');
  return {
    url: front.toString(),
    count: () => count,
    reset: () => {
      count = 0;
    },
  };
}
