import { createSocket } from 'node:dgram';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AddressPolicy } from '../../src/network/addresses.ts';
import { guardedAgent } from '../../src/network/guarded-agent.ts';
import { lookupsAtOnce, SystemNames } from '../../src/network/names.ts';
import { realNetwork } from '../../src/network/network.ts';
import { until } from '../support/until.ts';

/** A name server, which answers with this address, or with nothing if it has none. Without an answer: never. */
async function nameServer(
  answer?: (name: string) => string | undefined,
): Promise<{ at: string; asked: () => number }> {
  const socket = createSocket('udp4');
  let asked = 0;
  socket.on('message', (query, { address, port }) => {
    asked += 1;
    if (!answer) return;
    const labels: string[] = [];
    let at = 12;
    for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
      labels.push(query.toString('latin1', at + 1, at + 1 + length));
      at += length + 1;
    }
    const question = query.subarray(12, at + 5);
    const isA = query.readUInt16BE(at + 1) === 1;
    const found = isA ? answer(labels.join('.')) : undefined;
    const head = Buffer.alloc(12);
    query.copy(head, 0, 0, 2);
    head.writeUInt16BE(0x8180, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(found === undefined ? 0 : 1, 6);
    const record = found ? [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...found.split('.').map(Number)] : [];
    socket.send(Buffer.concat([head, question, Buffer.from(record)]), port, address);
  });
  await new Promise<void>((done) => socket.bind(0, '127.0.0.1', done));
  onTestFinished(() => void socket.close());
  return { at: `127.0.0.1:${socket.address().port}`, asked: () => asked };
}

/** A lookup by the system, which hangs until it is let go. */
function hanging() {
  const held: { readonly name: string; readonly end: () => void }[] = [];
  const lookup = (name: string) =>
    new Promise<string[]>((resolve) => held.push({ name, end: () => resolve(['10.0.0.1']) }));
  onTestFinished(() => {
    for (const { end } of held) end();
  });
  return { held, lookup };
}

describe('SEC-3: names for which only public addresses are allowed', () => {
  test('are asked of name servers, and no thread is kept', async () => {
    const { held, lookup } = hanging();
    const server = await nameServer((name) => (name === 'gateway.example.com' ? '93.184.215.14' : undefined));
    const network = realNetwork({}, { lookup, servers: [server.at] });
    expect(await network.resolve('gateway.example.com', { isPublic: true })).toEqual(['93.184.215.14']);
    expect(await network.resolve('other.example.com', { isPublic: true })).toEqual([]);
    expect(held).toEqual([]);
  });

  test('whose server never answers are given up, any number at once', async () => {
    const { held, lookup } = hanging();
    const server = await nameServer();
    const network = realNetwork({}, { lookup, servers: [server.at], timeoutMs: 300 });
    const names = Array.from({ length: 20 }, (_, nth) => `host${nth}.example.com`);
    const results = await Promise.allSettled(names.map((name) => network.resolve(name, { isPublic: true })));
    for (const result of results)
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'NAME_TIMEOUT' } });
    expect(server.asked()).toBeGreaterThanOrEqual(40);
    expect(held).toEqual([]);
  });

  test('are looked up by the system where this machine has no name server', async () => {
    const server = createSocket('udp4');
    await new Promise<void>((done) => server.bind(0, '127.0.0.1', done));
    const { port } = server.address();
    await new Promise<void>((done) => server.close(done));
    const network = realNetwork(
      {},
      { lookup: async () => ['93.184.215.14'], servers: [`127.0.0.1:${port}`] },
    );
    expect(await network.resolve('gateway.example.com', { isPublic: true })).toEqual(['93.184.215.14']);
  });
});

describe('SEC-3: names that may lead to private addresses', () => {
  test('are looked up by the system: names of /etc/hosts are known', async () => {
    const addresses = await realNetwork().resolve('localhost');
    expect(addresses.some((address) => address === '127.0.0.1' || address === '::1')).toBe(true);
  });

  test('that hang leave a thread for the names of the operator, and callers do not wait', async () => {
    expect(lookupsAtOnce).toBe(1);
    const { held, lookup } = hanging();
    const names = new SystemNames();
    const options = { lookup, timeoutMs: 200 };
    const asked = ['a', 'b', 'c', 'a'].map((name) => names.resolve(name, options));
    const results = await Promise.allSettled(asked);
    for (const result of results)
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'NAME_TIMEOUT' } });
    // One is under way, for as long as it keeps its thread; the others have left the line.
    expect(held.map(({ name }) => name)).toEqual(['a']);
    const next = names.resolve('d', { lookup, timeoutMs: 60_000 });
    expect(held).toHaveLength(1);
    held[0]?.end();
    await until('it is the turn of the next', () => held.length === 2);
    held[1]?.end();
    expect(await next).toEqual(['10.0.0.1']);
    // It took too long, and is left alone for a while.
    await expect(names.resolve('a', options)).rejects.toMatchObject({ code: 'NAME_TIMEOUT' });
    expect(held).toHaveLength(2);
  });
});

test('SEC-3: the policy says which names are looked up how', async () => {
  const asked: unknown[] = [];
  const network = {
    ...realNetwork(),
    resolve: async (name: string, options?: object) => {
      asked.push([name, options]);
      return [];
    },
  };
  for (const allowPrivate of [false, true, [], ['10.0.0.0/8']]) {
    const agent = guardedAgent(new AddressPolicy({ allowPrivate, requireHttps: false }), network);
    await expect(agent.request({ origin: 'http://gateway', path: '/', method: 'GET' })).rejects.toThrow(
      'no address',
    );
    await agent.close();
  }
  expect(asked).toEqual([true, false, true, false].map((isPublic) => ['gateway', { isPublic }]));
});
