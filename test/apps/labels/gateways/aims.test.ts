import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
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
    await using simulator = await startLabelSimulator({ tokenSeconds: 50 });
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
    // The clock is ours: on the machine's own a slow call may outlive its token.
    const began = Date.now();
    onTestFinished(() => void vi.useRealTimers());
    vi.useFakeTimers({ toFake: ['Date'] });
    for (let second = 0; second < 150; second += 3) {
      vi.setSystemTime(began + second * 1000);
      await gateway.push({ mac, page: 1, image }, whole);
    }
    expect(refused).toBe(0);
    // At 0, 42, 84 and 126 seconds: when a fifth of its life is left.
    expect(simulator.simulation.counts().tokens).toBe(4);
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

  /** Answers with these rows, whatever is asked. */
  const listing = (pages: (page: number) => readonly object[]) =>
    serve((request, response) => {
      const url = new URL(request.url ?? '', 'http://localhost');
      if (url.pathname.endsWith('/token')) return response.end(token);
      const rows = pages(Number(url.searchParams.get('page') ?? 0));
      return rows.length === 0
        ? response.writeHead(204).end()
        : response.end(JSON.stringify({ labelList: rows, responseCode: '200', responseMessage: 'SUCCESS' }));
    });

  it.each([
    ['as the public document spells it', 'updateStatus', 'lastResponsetime'],
    ['as some installations do', 'status', 'lastResponseTime'],
  ])('LBL-7 state and last contact are read %s', async (_, status, lastResponse) => {
    await using server = await listing(() => [
      { labelCode: mac, [status]: 'TIMEOUT', [lastResponse]: '2021-05-18 14:34:05.631107', battery: 'GOOD' },
    ]);
    await using gateway = gatewayFor(aims(server));
    expect(await gateway.report([mac], whole)).toEqual([
      // The time is in UTC, whatever the zone of this machine.
      { mac, state: 'timeout', battery: 'GOOD', seenAt: new Date('2021-05-18T14:34:05.631Z') },
    ]);
  });

  it('LBL-7 the last contact does not depend on the zone of this machine', async () => {
    const zone = process.env.TZ;
    process.env.TZ = 'Asia/Kolkata';
    try {
      await using server = await listing(() => [
        { labelCode: mac, updateStatus: 'SUCCESS', lastResponsetime: '2021-05-18 14:34:05' },
      ]);
      await using gateway = gatewayFor(aims(server));
      const [report] = await gateway.report([mac], whole);
      expect(report?.seenAt?.toISOString()).toBe('2021-05-18T14:34:05.000Z');
    } finally {
      if (zone === undefined) delete process.env.TZ;
      else process.env.TZ = zone;
    }
  });

  it('LBL-7 a list with fewer labels a page than were asked for is read to its end', async () => {
    const macs = Array.from(
      { length: 250 },
      (_, at) => `00000000${(0x1000 + at).toString(16).toUpperCase()}`,
    );
    const row = (labelCode: string) => ({ labelCode, updateStatus: 'SUCCESS' });
    await using server = await listing((page) => macs.slice(page * 100, (page + 1) * 100).map(row));
    await using gateway = gatewayFor(aims(server));
    const reports = await gateway.report(macs.slice(-20), whole);
    expect(new Set(reports.map(({ state }) => state))).toEqual(new Set(['shown']));
  });

  it('LBL-7 a list that gives the same page again and again ends', async () => {
    let asked = 0;
    const rows = Array.from({ length: 500 }, (_, at) => ({
      labelCode: `00000000${(0x1000 + at).toString(16).toUpperCase()}`,
      updateStatus: 'SUCCESS',
    }));
    await using server = await listing(() => {
      asked += 1;
      return rows;
    });
    await using gateway = gatewayFor(aims(server));
    const strangers = Array.from({ length: 20 }, (_, at) => `FFFFFFFFFF${at + 10}`);
    const reports = await gateway.report(strangers, whole);
    expect(new Set(reports.map(({ state }) => state))).toEqual(new Set(['unknown']));
    expect(asked).toBe(2);
  });

  it('LBL-7 the simulator answers with the fields of the public document', async () => {
    await using simulator = await startLabelSimulator();
    const post = (path: string, body: object, headers = {}) =>
      fetch(`${simulator.url}/common/api/v2${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      });
    const given = (await (await post('/token', { username: 'u', password: 'p' })).json()) as {
      responseMessage: { access_token: string };
    };
    expect(given).toMatchObject({
      responseCode: '200',
      responseMessage: {
        access_token: expect.any(String),
        token_type: 'Bearer',
        expires_in: expect.any(Number),
        refresh_token: expect.any(String),
      },
    });
    const authorization = `Bearer ${given.responseMessage.access_token}`;
    const image = (await imageOf('1')).png.toString('base64');
    const pushed = await post(
      '/common/labels/image?company=C&store=S',
      { labelCode: mac, page: 1, frontPage: 1, image, dithering: false },
      { authorization },
    );
    expect(await pushed.json()).toEqual({
      customBatchId: expect.any(String),
      responseCode: '200',
      responseMessage: 'SUCCESS',
    });
    const listed = await fetch(`${simulator.url}/common/api/v2/common/labels?company=C&store=S`, {
      headers: { authorization },
    });
    const { labelList } = (await listed.json()) as { labelList: Record<string, unknown>[] };
    expect(labelList).toMatchObject([
      {
        labelCode: mac,
        updateStatus: 'SUCCESS',
        lastResponsetime: expect.stringMatching(/^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{6}$/),
        articleList: [],
        battery: 'GOOD',
        networkStatus: true,
      },
    ]);
    expect(labelList[0]).not.toHaveProperty('status');
    expect(labelList[0]).not.toHaveProperty('lastResponseTime');
    const refused = await fetch(`${simulator.url}/common/api/v2/common/labels?company=C&store=S`);
    expect([refused.status, await refused.json()]).toEqual([
      401,
      { responseCode: '401', responseMessage: 'Unauthorized' },
    ]);
  });
});
