import { describe, expect, it } from 'vitest';
import { refusal, retryAfterLimits } from '../../../../src/apps/labels/gateways/http.ts';
import { startLabelSimulator } from '../../../../src/apps/labels/gateways/simulator/index.ts';
import { PermanentError, RetryLater } from '../../../../src/engine/errors.ts';
import { retryAfterMs } from '../../../../src/engine/resilience/http.ts';
import { aims, gatewayFor, imageOf, mac, openEPaperLink, whole } from './support.ts';

describe('What an answer means', () => {
  it.each([400, 403, 404, 405, 413, 422])('LBL-7 %s: no retry can mend it', (status) => {
    expect(refusal('G', status, '', 1000)).toBeInstanceOf(PermanentError);
  });

  it.each([401, 408, 409, 425, 429, 500, 502, 503, 504, 302, 307])(
    'LBL-7 %s: again, when it says',
    (status) => {
      expect(refusal('G', status, '', 1500)).toMatchObject({ delayMs: 1500 });
      const untold = refusal('G', status, '', undefined);
      expect(untold).not.toBeInstanceOf(PermanentError);
      expect(untold).not.toBeInstanceOf(RetryLater);
    },
  );

  it('LBL-7 what the gateway says is passed on, in one line of bounded length', () => {
    const { message } = refusal('AIMS', 405, `Parameter\n  is ${'very '.repeat(100)}invalid`, undefined);
    expect(message).toMatch(/^AIMS answered 405: Parameter is very very .*…$/);
    expect(message.length).toBeLessThan(230);
  });

  it('LBL-7 Retry-After is seconds or a date, an hour at most; anything else is not there', () => {
    const now = Date.parse('2026-01-01T00:00:00Z');
    const retryAfter = (header?: string) => retryAfterMs(header, now, retryAfterLimits);
    expect(retryAfter('7')).toBe(7000);
    expect(retryAfter('Thu, 01 Jan 2026 00:01:00 GMT')).toBe(60_000);
    expect(retryAfter('Wed, 31 Dec 2025 00:00:00 GMT')).toBe(0);
    expect(retryAfter('999999')).toBe(3_600_000);
    for (const nothing of [undefined, '', 'soon']) expect(retryAfter(nothing)).toBeUndefined();
  });

  it.each([
    ['AIMS', aims],
    ['OpenEPaperLink', openEPaperLink],
  ])('LBL-7 %s: an answer without end is not read to its end', async (_, settings) => {
    await using simulator = await startLabelSimulator();
    await using gateway = gatewayFor(settings(simulator, 60_000));
    simulator.simulation.labels.register(mac).settings = { fault: 'endless' };
    await expect(gateway.push({ mac, page: 1, image: await imageOf('1') }, whole)).rejects.toMatchObject({
      code: 'GATEWAY_ANSWER',
      message: expect.stringMatching(/answered with more than \d+ bytes/),
    });
  });
});
