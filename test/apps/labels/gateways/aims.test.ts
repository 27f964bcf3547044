import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { startLabelSimulator } from '../../../../src/apps/labels/gateways/simulator/index.ts';
import { PermanentError, RetryLater } from '../../../../src/engine/errors.ts';
import { gatewayConformance } from './conformance.ts';
import { aims, gatewayFor, imageOf, mac, whole } from './support.ts';

gatewayConformance('SoluM AIMS', { settings: aims, tellsHashes: true });

/** A server of a few lines, for answers that no gateway should give. */
async function serve(listener: RequestListener): Promise<AsyncDisposable & { readonly url: string }> {
  const server = createServer(listener);
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}
const token = JSON.stringify({ responseCode: '200', responseMessage: { access_token: 't', expires_in: 60 } });

describe('The token of AIMS', () => {
  it('LBL-7 many calls at once ask for one token', async () => {
    await using simulator = await startLabelSimulator({ latency: { minMs: 30, maxMs: 60 } });
    await using gateway = gatewayFor(aims(simulator));
    const image = await imageOf('1');
    await Promise.all(Array.from({ length: 40 }, () => gateway.push({ mac, page: 1, image }, whole)));
    expect(simulator.simulation.counts()).toMatchObject({ tokens: 1, accepted: 40 });
  });

  it('LBL-7 a storm of 401 makes one request for a new token, and every call succeeds', async () => {
    await using simulator = await startLabelSimulator();
    await using gateway = gatewayFor(aims(simulator));
    const image = await imageOf('1');
    await gateway.push({ mac, page: 1, image }, whole);
    simulator.simulation.tokens.revoke();
    await Promise.all(Array.from({ length: 40 }, () => gateway.push({ mac, page: 1, image }, whole)));
    expect(simulator.simulation.counts()).toMatchObject({ tokens: 2, accepted: 41 });
  });

  it('LBL-7 it is renewed before it ends: no call is ever refused', async () => {
    await using simulator = await startLabelSimulator({ tokenSeconds: 0.5 });
    await using gateway = gatewayFor(aims(simulator));
    const image = await imageOf('1');
    let refused = 0;
    const check = simulator.simulation.tokens.check.bind(simulator.simulation.tokens);
    simulator.simulation.tokens.check = (authorization) => {
      try {
        check(authorization);
      } catch (error) {
        refused += 1;
        throw error;
      }
    };
    const end = Date.now() + 1500;
    while (Date.now() < end) await gateway.push({ mac, page: 1, image }, whole);
    const { tokens } = simulator.simulation.counts();
    expect(refused).toBe(0);
    expect(tokens).toBeGreaterThanOrEqual(3);
    expect(tokens).toBeLessThanOrEqual(6);
  });

  it('LBL-7 a 401 that a new token does not help is an error, after one try', async () => {
    let pushes = 0;
    let tokens = 0;
    await using server = await serve((request, response) => {
      if (request.url?.includes('/token')) {
        tokens += 1;
        response.end(token);
      } else {
        pushes += 1;
        response.writeHead(401).end('{}');
      }
    });
    await using gateway = gatewayFor(aims(server));
    const error: unknown = await gateway
      .push({ mac, page: 1, image: await imageOf('1') }, whole)
      .catch((e) => e);
    expect(error).toMatchObject({ code: 'GATEWAY_FAILED' });
    expect(error).not.toBeInstanceOf(PermanentError);
    expect([pushes, tokens]).toEqual([2, 2]);
  });

  it('LBL-7 wrong credentials are asked about once, not by every label, and never named', async () => {
    await using simulator = await startLabelSimulator({ password: 'another' });
    await using gateway = gatewayFor(aims(simulator));
    const image = await imageOf('1');
    const errors = [];
    for (let nth = 0; nth < 5; nth += 1)
      errors.push(await gateway.push({ mac, page: 1, image }, whole).catch((error: unknown) => error));
    for (const error of errors) {
      expect(error).toBeInstanceOf(RetryLater);
      expect((error as RetryLater).delayMs).toBeGreaterThan(20_000);
      expect(String(error)).toContain('refused the user name or password');
      expect(String(error)).not.toContain('pass-word');
    }
    expect(simulator.simulation.counts().calls).toBe(1);
  });

  it('LBL-7 a caller that gives up leaves the token to the others', async () => {
    await using simulator = await startLabelSimulator({ latency: { minMs: 700, maxMs: 700 } });
    await using gateway = gatewayFor(aims(simulator));
    const image = await imageOf('1');
    const giveUp = new AbortController();
    const first = gateway.push({ mac, page: 1, image }, giveUp.signal);
    const second = gateway.push({ mac, page: 1, image }, whole);
    giveUp.abort(new Error('gone'));
    await expect(first).rejects.toThrow('gone');
    // At once, not when the token has come.
    expect(simulator.simulation.counts().tokens).toBe(0);
    await second;
    expect(simulator.simulation.counts()).toMatchObject({ tokens: 1, accepted: 1 });
  });

  it.each([
    ['not JSON', 'hello'],
    ['no token', '{"responseMessage":{}}'],
    ['no end', '{"responseMessage":{"access_token":"t"}}'],
  ])('LBL-7 an answer with %s is no token', async (_, body) => {
    await using server = await serve((_request, response) => response.end(body));
    await using gateway = gatewayFor(aims(server));
    await expect(gateway.report([mac], whole)).rejects.toMatchObject({ code: 'GATEWAY_ANSWER' });
  });
});

describe('Answers of AIMS', () => {
  it.each([
    ['405', PermanentError],
    ['403', PermanentError],
    ['500', Error],
  ])('LBL-7 200 with responseCode %s is what the code says', async (code, kind) => {
    await using server = await serve((request, response) =>
      response.end(
        request.url?.includes('/token')
          ? token
          : JSON.stringify({ responseCode: code, responseMessage: 'no' }),
      ),
    );
    await using gateway = gatewayFor(aims(server));
    const error: unknown = await gateway
      .push({ mac, page: 1, image: await imageOf('1') }, whole)
      .catch((e) => e);
    expect(error).toBeInstanceOf(kind);
    expect(error).toMatchObject({ message: `AIMS answered ${code}: no` });
  });

  it('LBL-7 a redirect is not followed', async () => {
    let elsewhere = 0;
    await using target = await serve((_request, response) => {
      elsewhere += 1;
      response.end(token);
    });
    await using server = await serve((request, response) => {
      if (request.url?.includes('/token')) response.end(token);
      else response.writeHead(307, { location: target.url }).end();
    });
    await using gateway = gatewayFor(aims(server));
    const error: unknown = await gateway
      .push({ mac, page: 1, image: await imageOf('1') }, whole)
      .catch((e) => e);
    expect(error).toMatchObject({ code: 'GATEWAY_REDIRECT' });
    expect(elsewhere).toBe(0);
  });

  it('LBL-7 labels are listed page by page until the last', async () => {
    await using simulator = await startLabelSimulator();
    await using gateway = gatewayFor(aims(simulator));
    const macs = Array.from(
      { length: 1200 },
      (_, at) => `00000000${(0x1000 + at).toString(16).toUpperCase()}`,
    );
    for (const each of macs) simulator.simulation.labels.register(each);
    const image = await imageOf('1');
    await gateway.push({ mac: macs.at(-1) ?? '', page: 1, image }, whole);
    const asked = macs.slice(-20);
    const reports = await gateway.report(asked, whole);
    expect(reports.map(({ mac }) => mac)).toEqual(asked);
    expect(reports.at(-1)?.state).toBe('shown');
    expect(reports[0]?.state).toBe('unknown');
  });
});
