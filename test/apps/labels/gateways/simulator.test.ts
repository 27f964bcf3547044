import { describe, expect, it } from 'vitest';
import { gatewaySettings } from '../../../../src/apps/labels/gateways/index.ts';
import { evenFaults, startLabelSimulator } from '../../../../src/apps/labels/gateways/simulator/index.ts';
import { complaint, start } from '../../../cli/support.ts';
import { until } from '../../../support/until.ts';
import { aims, gatewayFor, imageOf, mac, other, whole } from './support.ts';

const ask = async (url: string, method = 'GET', body?: unknown) => {
  const answer = await fetch(url, { method, ...(body !== undefined && { body: JSON.stringify(body) }) });
  const text = await answer.text();
  return { status: answer.status, body: text === '' ? null : JSON.parse(text) };
};

describe('The simulator of labels', () => {
  it('LBL-7 tells every image it accepted, in order, also to other processes', async () => {
    await using simulator = await startLabelSimulator();
    await using gateway = gatewayFor(aims(simulator));
    const images = [await imageOf('1'), await imageOf('2')];
    for (const image of images) await gateway.push({ mac, page: 1, image }, whole);
    const { body } = await ask(`${simulator.url}/simulator/labels/${mac}`);
    expect(body).toMatchObject({ mac, status: 'SUCCESS', accepted: 2, shown: { 1: images[1]?.hash } });
    expect(body.images.map((image: { hash: string }) => image.hash)).toEqual(images.map(({ hash }) => hash));
    const last = await fetch(`${simulator.url}/simulator/labels/${mac}/image`);
    expect(Buffer.from(await last.arrayBuffer())).toEqual(images[1]?.png);
  });

  it('LBL-7 one label can be made to fail, and healed, while it runs', async () => {
    await using simulator = await startLabelSimulator();
    await using gateway = gatewayFor(aims(simulator));
    const image = await imageOf('1');
    const patch = (body: unknown) => ask(`${simulator.url}/simulator/labels/${mac}`, 'PATCH', body);
    expect(await patch({ fault: '500' })).toMatchObject({
      status: 200,
      body: { settings: { fault: '500' } },
    });
    await expect(gateway.push({ mac, page: 1, image }, whole)).rejects.toThrow('500');
    await gateway.push({ mac: other, page: 1, image }, whole);
    await patch({ fault: null });
    await gateway.push({ mac, page: 1, image }, whole);
    expect((await ask(`${simulator.url}/simulator`)).body).toMatchObject({
      accepted: 2,
      labels: 2,
      faults: { 500: 1 },
    });
    expect(await patch({ fault: 'sulk' })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('fault') },
    });
    expect((await ask(`${simulator.url}/simulator/labels/12`)).status).toBe(404);
  });

  it('LBL-7 settings change while it runs; what is not named stays', async () => {
    await using simulator = await startLabelSimulator({ tokenSeconds: 7 });
    const { body } = await ask(`${simulator.url}/simulator/settings`, 'PATCH', { faults: { 429: 1 } });
    expect(body).toMatchObject({ faults: { 429: 1 }, tokenSeconds: 7 });
    const refused = await ask(`${simulator.url}/simulator/settings`, 'PATCH', {
      latency: { minMs: 9, maxMs: 1 },
    });
    expect(refused).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('minMs must not be above maxMs') },
    });
  });

  it('LBL-7 the same seed: the nth image of a label meets the same fate, in whatever order labels come', async () => {
    const macs = [mac, other];
    const run = async (seed: number, order: readonly string[]): Promise<string> => {
      await using simulator = await startLabelSimulator({
        seed,
        faults: evenFaults(0.5),
        labelTimeouts: 0.3,
      });
      const label = (each: string) => simulator.simulation.labels.register(each);
      const { labels, settings } = simulator.simulation;
      const fates = order.map((each) => [each, labels.chance(label(each)).next() < 0.5] as const);
      expect(settings.labelTimeouts).toBe(0.3);
      return JSON.stringify(macs.map((each) => fates.filter(([of]) => of === each).map(([, fate]) => fate)));
    };
    const one = [mac, mac, other, other, mac, other, mac, other];
    const another = [other, mac, other, mac, other, mac, other, mac];
    expect(await run(3, another)).toBe(await run(3, one));
    expect(await run(4, one)).not.toBe(await run(3, one));
  });

  it('LBL-7 a share of faults is about that, of every kind', async () => {
    await using simulator = await startLabelSimulator({ faults: evenFaults(0.3), retryAfter: 'none' });
    await using gateway = gatewayFor(aims(simulator));
    const image = await imageOf('1');
    simulator.simulation.change({ faults: {} });
    await gateway.push({ mac, page: 1, image }, whole);
    simulator.simulation.change({ faults: evenFaults(0.3) });
    // Those that hang are ended when all others have their answer, not by a time limit that a slow machine may miss.
    const giveUp = new AbortController();
    let answered = 0;
    const pushes = Array.from({ length: 200 }, (_, at) =>
      gateway.push({ mac: `00000000${1000 + at}`, page: 1, image }, giveUp.signal).finally(() => {
        answered += 1;
      }),
    );
    const settled = Promise.allSettled(pushes);
    const { simulation } = simulator;
    await until(
      'only those that hang are left',
      () => answered + (simulation.counts().faults.hang ?? 0) === 200,
    );
    giveUp.abort(new Error('enough'));
    const failed = (await settled).filter(({ status }) => status === 'rejected').length;
    expect(failed).toBeGreaterThan(25);
    expect(failed).toBeLessThan(110);
    expect(Object.keys(simulator.simulation.counts().faults).sort()).toEqual([
      '429',
      '500',
      '503',
      'hang',
      'lost',
      'reset',
    ]);
  });

  it('LBL-7 tallyman simulate labels: serves until it is told to stop, then tells its counts', async () => {
    const process = start('src/cli/main.ts', [
      'simulate',
      'labels',
      '--port',
      '0',
      '--for',
      '3s',
      '--latency',
      '1ms-5ms',
      '--json',
    ]);
    const { code, stdout, stderr } = await process.ended;
    expect({ code, said: stderr.trim() }).toEqual({
      code: 0,
      said: expect.stringMatching(/^Labels are simulated at http:\/\/127\.0\.0\.1:\d+$/),
    });
    expect(JSON.parse(stdout)).toMatchObject({ seed: 1, accepted: 0, labels: 0 });
  });

  it.each([
    [['--latency', '80ms-5ms'], 'two such as 5ms-80ms'],
    [['--faults', '5'], 'Expected a share from 0 to 1'],
    [['--latency', 'slow'], 'Expected a time such as'],
  ])('LBL-7 tallyman simulate labels %j: one message', async (args, says) => {
    const ended = await start('src/cli/main.ts', ['simulate', 'labels', ...args]).ended;
    expect(ended.code).toBe(2);
    expect(complaint(ended)).toContain(says);
  });
});

describe('Settings of a gateway', () => {
  it.each([
    [
      { kind: 'aims', url: 'ftp://example.com', company: 'c', store: 's', username: 'u', password: 'p' },
      /url/,
    ],
    [{ kind: 'aims', url: 'https://example.com', store: 's', username: 'u', password: 'p' }, /company/],
    [{ kind: 'openepaperlink', url: 'http://192.168.1.20', user: 'x' }, /user/],
    [{ kind: 'hanshow', url: 'http://192.168.1.20' }, /kind/],
  ])('LBL-7 refuses %j', (settings, where) => {
    expect(() => gatewaySettings.parse(settings)).toThrow(where);
  });

  it('LBL-7 a time limit is set where none is given', () => {
    expect(gatewaySettings.parse({ kind: 'openepaperlink', url: 'http://192.168.1.20' })).toMatchObject({
      timeoutMs: 15_000,
    });
  });
});
