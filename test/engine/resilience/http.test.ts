import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type HttpCall,
  HttpError,
  httpCall,
  isRetriableStatus,
  retryAfterMs,
} from '../../../src/engine/resilience/http.ts';

/** A server on the loopback. */
async function serve(listener: RequestListener): Promise<URL> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/path?a=1`);
}

const call = (url: URL, more: Partial<HttpCall> = {}) =>
  httpCall({
    url,
    method: 'GET',
    timeoutMs: 10_000,
    maxBytes: 1_000,
    signal: new AbortController().signal,
    ...more,
  });

describe('a bounded HTTP call', () => {
  it('sends what it is given, and answers with what it got, whatever the status', async () => {
    const url = await serve(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      response.writeHead(422, { 'x-seen': `${request.method} ${request.url} ${request.headers['x-key']}` });
      response.end(Buffer.concat(chunks));
    });
    const answer = await call(url, { method: 'POST', headers: { 'x-key': 'k' }, body: 'hello' });
    expect(answer).toMatchObject({ status: 422, headers: { 'x-seen': 'POST /path?a=1 k' } });
    expect(answer.body.toString()).toBe('hello');
  });

  it('does not follow redirects', async () => {
    let asked = 0;
    const url = await serve((_, response) => {
      asked += 1;
      response.writeHead(302, { location: '/elsewhere' }).end();
    });
    expect(await call(url)).toMatchObject({ status: 302 });
    expect(asked).toBe(1);
  });

  it('has one time limit for all of it, also for an answer that trickles', async () => {
    const url = await serve((_, response) => {
      response.writeHead(200);
      const dripping = setInterval(() => response.write('.'), 10);
      response.on('close', () => clearInterval(dripping));
    });
    await expect(call(url, { timeoutMs: 1_000 })).rejects.toMatchObject({
      failure: 'timeout',
      code: 'TIMEOUT',
      message: 'no complete answer within 1000 ms',
      isRetriable: true,
      partial: { status: 200 },
    });
    const silent = await serve(() => {});
    await expect(call(silent, { timeoutMs: 50 })).rejects.toMatchObject({
      failure: 'timeout',
      partial: undefined,
    });
  });

  it('refuses a longer answer, or takes its beginning', async () => {
    const url = await serve((_, response) => void response.end('x'.repeat(1_001)));
    await expect(call(url)).rejects.toMatchObject({
      failure: 'too-long',
      isRetriable: false,
      message: 'the answer is longer than 1000 bytes',
    });
    expect((await call(url, { maxBytes: 1_001 })).body).toHaveLength(1_001);
    expect((await call(url, { ifLonger: 'cut' })).body).toHaveLength(1_000);
  });

  it('an answer without end is not read to its end', async () => {
    const closed = Promise.withResolvers<void>();
    const url = await serve((_, response) => {
      const flowing = setInterval(() => response.write('x'.repeat(500)), 1);
      response.on('close', () => {
        clearInterval(flowing);
        closed.resolve();
      });
    });
    expect((await call(url, { ifLonger: 'cut' })).body).toHaveLength(1_000);
    await closed.promise;
  });

  it('says why there is no connection, and that another attempt may get one', async () => {
    const url = await serve(() => {});
    url.port = '1';
    await expect(call(url)).rejects.toMatchObject({
      failure: 'network',
      code: 'ECONNREFUSED',
      isRetriable: true,
    });
    const broken = createTcpServer((socket) => {
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf'));
    });
    await new Promise<void>((resolve) => broken.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void broken.close());
    const half = new URL(`http://127.0.0.1:${(broken.address() as AddressInfo).port}/`);
    await expect(call(half)).rejects.toMatchObject({ failure: 'network', partial: { status: 200 } });
  });

  it('a caller that gives up gets its own reason', async () => {
    const stop = new AbortController();
    const url = await serve(() => stop.abort(new Error('shutting down')));
    await expect(call(url, { signal: stop.signal })).rejects.toThrow('shutting down');
  });
});

describe('what an answer means', () => {
  it('is retried where the server, not the request, is to blame', () => {
    for (const status of [302, 408, 409, 425, 429, 500, 502, 503, 504])
      expect(isRetriableStatus(status)).toBe(true);
    for (const status of [400, 401, 403, 404, 410, 413, 422]) expect(isRetriableStatus(status)).toBe(false);
    const refused = (status: number) => new HttpError('status', 'no', { partial: { status, headers: {} } });
    expect([refused(404).isRetriable, refused(503).isRetriable]).toEqual([false, true]);
  });

  it('Retry-After is seconds or a date, within the limits; anything else is not there', () => {
    const now = Date.parse('2026-01-01T00:00:00Z');
    const read = (header: unknown) => retryAfterMs(header, now, { minMs: 1_000, maxMs: 3_600_000 });
    expect(read('7')).toBe(7_000);
    expect(read(['8', '9'])).toBe(8_000);
    expect(read('Thu, 01 Jan 2026 00:01:00 GMT')).toBe(60_000);
    expect(read('Wed, 31 Dec 2025 00:00:00 GMT')).toBe(1_000);
    expect(read('0')).toBe(1_000);
    expect(read('999999')).toBe(3_600_000);
    for (const nothing of [undefined, null, '', 'soon', [], 7]) expect(read(nothing)).toBeUndefined();
  });
});
