/** A tenant chooses the gateway of its store: it may be a server that is made to do harm. */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  createGateway,
  type GatewayGuard,
  type GatewaySettings,
} from '../../../../src/apps/labels/gateways/index.ts';
import { aims, openEPaperLink, whole } from './support.ts';

/** What it answers for page 0, 1, 2, … of its list. */
type Page = (nth: number) => Promise<object> | object;
const strangers = (nth: number, count: number): string[] =>
  Array.from({ length: count }, (_, at) => (nth * count + at).toString(16).toUpperCase().padStart(12, 'F'));
const wanted = Array.from({ length: 20 }, (_, at) => `A${at.toString(16).padStart(11, '0').toUpperCase()}`);

async function malicious(page: Page): Promise<{ readonly url: string; readonly asked: () => number }> {
  let asked = 0;
  const listener: RequestListener = async (request, response) => {
    if (request.url?.includes('/token'))
      return response.end(JSON.stringify({ responseMessage: { access_token: 't', expires_in: 3600 } }));
    response.end(JSON.stringify(await page(asked++)));
  };
  const server = createServer(listener);
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked: () => asked };
}

const kinds: Record<
  string,
  {
    readonly settings: (at: { url: string }) => GatewaySettings;
    readonly page: (codes: readonly string[], nth: number, more?: object) => object;
  }
> = {
  AIMS: {
    settings: aims,
    page: (codes, _, more) => codes.map((labelCode) => ({ labelCode, updateStatus: 'SUCCESS', ...more })),
  },
  OpenEPaperLink: {
    settings: openEPaperLink,
    page: (codes, nth, more) => ({
      tags: codes.map((mac) => ({ mac, pending: 0, ...more })),
      continu: nth + 1,
    }),
  },
};

describe.each(Object.entries(kinds))('SEC-3: a list that never ends, %s', (_, { settings, page }) => {
  const report = async (at: { url: string }, limits?: GatewayGuard['report']) => {
    const gateway = createGateway(settings(at), limits ? { report: limits } : {});
    onTestFinished(() => gateway.close());
    return gateway.report(wanted, whole);
  };

  test('of any number of labels', async () => {
    const server = await malicious((nth) => page(strangers(nth, 5_000), nth));
    await expect(report(server)).rejects.toMatchObject({
      code: 'GATEWAY_ANSWER',
      message: expect.stringContaining('more than 200000 labels'),
    });
    expect(server.asked()).toBe(41);
  });

  test('of few labels on each page, with much beside them', async () => {
    const padding = 'x'.repeat(1000 * 1000);
    const server = await malicious((nth) => page(strangers(nth, 1), nth, { padding }));
    await expect(report(server)).rejects.toThrow(/more than 67108864 bytes/);
    expect(server.asked()).toBe(68);
  });

  test('of few labels on each page', async () => {
    const server = await malicious((nth) => page(strangers(nth, 1), nth));
    await expect(report(server, { pages: 30 })).rejects.toThrow(/more than 30 pages/);
    expect(server.asked()).toBe(31);
  });

  test('of pages that come slowly, each of them in time', async () => {
    const server = await malicious(async (nth) => {
      await sleep(50);
      return page(strangers(nth, 1), nth);
    });
    await expect(report(server, { timeMs: 500 })).rejects.toMatchObject({ code: 'GATEWAY_TIMEOUT' });
    expect(server.asked()).toBeLessThan(15);
  });
});

test('SEC-3: of what AIMS says about a label only what is used is kept', async () => {
  const large = 'x'.repeat(100_000);
  const server = await malicious(() =>
    wanted.map((labelCode) => ({
      labelCode,
      updateStatus: 'SUCCESS',
      battery: large,
      imageHashes: { 1: 'hash', 2: large },
    })),
  );
  const gateway = createGateway(aims(server));
  onTestFinished(() => gateway.close());
  const [first] = await gateway.report(wanted, whole);
  expect(first).toEqual({ mac: wanted[0], state: 'shown', hashes: new Map([[1, 'hash']]) });
});
