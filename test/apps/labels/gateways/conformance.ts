/** What every gateway must do, whatever it speaks. An adapter passes it by running it against the simulator. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { GatewaySettings, LabelGateway } from '../../../../src/apps/labels/gateways/index.ts';
import {
  type LabelSimulator,
  startLabelSimulator,
} from '../../../../src/apps/labels/gateways/simulator/index.ts';
import { PermanentError, RetryLater } from '../../../../src/engine/errors.ts';
import { gatewayFor, imageOf, mac, other, whole } from './support.ts';

export interface GatewayAdapter {
  readonly settings: (simulator: Pick<LabelSimulator, 'url'>, timeoutMs?: number) => GatewaySettings;
  /** It tells which image a label shows. */
  readonly tellsHashes: boolean;
}

export function gatewayConformance(name: string, adapter: GatewayAdapter): void {
  describe(`The gateway ${name}`, () => {
    let simulator: LabelSimulator;
    let gateway: LabelGateway;
    const push = async (text: string, to = mac) =>
      gateway.push({ mac: to, page: 1, image: await imageOf(text) }, whole);
    const images = (of = mac) => simulator.simulation.labels.get(of)?.images ?? [];

    beforeAll(async () => {
      simulator = await startLabelSimulator();
    });
    beforeEach(() => {
      simulator.simulation.labels.clear();
      simulator.simulation.change({
        ...{ faults: {}, shownAfter: { minMs: 0, maxMs: 0 }, latency: { minMs: 0, maxMs: 0 } },
        ...{ takesAnyLabel: true, labelTimeouts: 0, retryAfter: 'seconds', retryAfterSeconds: 0 },
      });
      gateway = gatewayFor(adapter.settings(simulator));
    });
    afterEach(() => gateway.close());
    afterAll(() => simulator.close());

    /** What a push that must not succeed throws. */
    const refused = async (settings = adapter.settings(simulator)): Promise<unknown> => {
      await using one = gatewayFor(settings);
      // Awaited: the gateway is closed where this block ends.
      return await one.push({ mac, page: 1, image: await imageOf('a') }, whole).then(
        () => expect.fail('it was accepted'),
        (error: unknown) => error,
      );
    };

    it('LBL-7 what was pushed is what arrived, pixel for pixel, in order', async () => {
      for (const text of ['1', '2', '3']) await push(text);
      const hashes = await Promise.all(['1', '2', '3'].map(async (text) => (await imageOf(text)).hash));
      expect(images().map(({ hash }) => hash)).toEqual(hashes);
    });

    it('LBL-7 accepted first, shown later: the report follows', async () => {
      simulator.simulation.change({ shownAfter: { minMs: 6e5, maxMs: 6e5 } });
      await push('1');
      const [before] = await gateway.report([mac], whole);
      expect(before).toMatchObject({ mac, state: 'processing' });
      const label = simulator.simulation.labels.get(mac);
      label?.images.push(...label.images.splice(0).map((image) => ({ ...image, shownAt: image.acceptedAt })));
      const [report] = await gateway.report([mac], whole);
      expect(report?.state).toBe('shown');
      expect(report?.hashes?.get(1)).toBe(adapter.tellsHashes ? (await imageOf('1')).hash : undefined);
      expect(report?.battery).toEqual(expect.any(String));
      expect(report?.seenAt).toBeInstanceOf(Date);
    });

    it('LBL-7 a label that never shows its image is reported as timed out', async () => {
      simulator.simulation.change({ labelTimeouts: 1 });
      await push('1');
      expect(await gateway.report([mac], whole)).toMatchObject([{ mac, state: 'timeout' }]);
    });

    it('LBL-7 reports come for the labels asked for, in their order, strangers as unknown', async () => {
      await push('1');
      await push('1', other);
      const strangers = Array.from(
        { length: 40 },
        (_, at) => `AAAAAAAAAA${(at + 16).toString(16).toUpperCase()}`,
      );
      for (const stranger of strangers) simulator.simulation.labels.register(stranger);
      for (const macs of [
        [other, 'FFFFFFFFFFFF', mac],
        [...strangers.slice(0, 30), other, 'FFFFFFFFFFFF', mac],
      ]) {
        const reports = await gateway.report(macs, whole);
        expect(reports.map(({ mac }) => mac)).toEqual(macs);
        expect(
          reports
            .slice(-3)
            .map(({ state }) => state)
            .sort(),
        ).toEqual(['shown', 'shown', 'unknown']);
      }
      expect(await gateway.report([], whole)).toEqual([]);
    });

    it('LBL-7 a label that the gateway does not know is refused for good', async () => {
      simulator.simulation.change({ takesAnyLabel: false });
      expect(await refused()).toBeInstanceOf(PermanentError);
      expect(images()).toEqual([]);
    });

    it.each(['403', '405'] as const)('LBL-7 %s is refused for good', async (fault) => {
      simulator.simulation.labels.register(mac).settings = { fault };
      const error = await refused();
      expect(error).toBeInstanceOf(PermanentError);
      expect(String(error)).toContain(fault);
    });

    it('LBL-7 429 and 503 are tried again when the gateway says', async () => {
      for (const fault of ['429', '503'] as const)
        for (const retryAfter of ['seconds', 'date'] as const) {
          simulator.simulation.change({ retryAfter, retryAfterSeconds: 20 });
          simulator.simulation.labels.register(mac).settings = { fault };
          const error = await refused();
          expect(error).toBeInstanceOf(RetryLater);
          const { delayMs } = error as RetryLater;
          expect(delayMs).toBeGreaterThan(10_000);
          expect(delayMs).toBeLessThanOrEqual(20_000);
        }
    });

    it.each(['429', '500', 'reset', 'lost'] as const)(
      'LBL-7 %s without a time is an error that the caller retries by itself',
      async (fault) => {
        simulator.simulation.change({ retryAfter: 'none' });
        simulator.simulation.labels.register(mac).settings = { fault };
        const error = await refused();
        expect(error).toBeInstanceOf(Error);
        expect(error).not.toBeInstanceOf(PermanentError);
        expect(error).not.toBeInstanceOf(RetryLater);
        // `lost` was accepted, and nobody told: the retry brings it a second time.
        expect(images()).toHaveLength(fault === 'lost' ? 1 : 0);
      },
    );

    it('LBL-7 an answer that never comes, never ends or is cut off is given up', async () => {
      const settings = adapter.settings(simulator, 300);
      // The token is had before: this is about the image.
      for (const fault of ['hang', 'endless', 'garbage'] as const) {
        simulator.simulation.labels.register(mac).settings = { fault };
        const error = await refused(settings);
        expect(error).not.toBeInstanceOf(PermanentError);
        expect(error).toMatchObject({ code: expect.stringMatching(/^GATEWAY_(TIMEOUT|ANSWER)$/) });
      }
    });

    it('LBL-7 reports do not take anything for an answer', async () => {
      for (const fault of ['garbage', '500', 'endless'] as const) {
        await push('1');
        simulator.simulation.change({ faults: { [fault]: 1 } });
        await using impatient = gatewayFor(adapter.settings(simulator, 1000));
        await expect(impatient.report([mac], whole)).rejects.toThrow();
        simulator.simulation.change({ faults: {} });
      }
    });

    it('LBL-7 the caller may give up', async () => {
      simulator.simulation.labels.register(mac).settings = { fault: 'hang' };
      const giveUp = new AbortController();
      const image = await imageOf('1');
      const pushed = gateway.push({ mac, page: 1, image }, giveUp.signal);
      const reason = new Error('the lease is gone');
      setTimeout(() => giveUp.abort(reason), 50);
      await expect(pushed).rejects.toBe(reason);
      await expect(gateway.report([mac], AbortSignal.abort(reason))).rejects.toBe(reason);
    });

    it('LBL-7 nobody listens there: an error to be retried, which names the address', async () => {
      const error = await refused(adapter.settings({ url: 'http://127.0.0.1:9' }));
      expect(error).toMatchObject({
        code: 'GATEWAY_UNREACHABLE',
        message: expect.stringContaining('127.0.0.1:9'),
      });
      expect(error).not.toBeInstanceOf(PermanentError);
    });
  });
}
