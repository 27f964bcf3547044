/**
 * What every wake-up through a broker must do. An adapter passes it by running it.
 * Each test brings the broker into the state it needs, so that any of them runs alone; their order
 * only saves restarts.
 */
import { resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { BackoffLimits } from '../../../src/engine/resilience/backoff.ts';
import type { Hint, Wakeup } from '../../../src/engine/wakeups/wakeup.ts';
import { eventually } from '../../support/eventually.ts';
import { RecordedLogs } from '../../support/services/logs.ts';
import { runAlone, specifier } from '../../support/services/own-process.ts';
import type { Service } from '../../support/services/service.ts';

export interface WakeupSettings {
  readonly url: string;
  readonly logger: RecordedLogs;
  readonly reconnect: BackoffLimits;
  readonly connectTimeoutMs: number;
}

export interface BrokerAdapter {
  readonly broker: () => Promise<Service>;
  readonly create: (settings: WakeupSettings) => Wakeup;
  /** Source text of the same: an expression for an adapter at `url`, and the file it comes from. */
  readonly source: { readonly file: string; readonly factory: string; readonly urlOption: string };
  /** Sends bytes as another system would, to where every process listens. */
  readonly sendRaw: (url: string, bodies: readonly Uint8Array[]) => Promise<void>;
}

const reconnect = { minMs: 20, maxMs: 100 };
/** More than a busy broker needs to answer. */
const connectTimeoutMs = 10_000;
const shortTimeoutMs = 1_000;
const restartLimitMs = 180_000;

export function wakeupConformance(name: string, adapter: BrokerAdapter): void {
  describe(`Wake-ups through ${name}`, () => {
    let broker: Service;
    const open: Wakeup[] = [];

    const listen = async (url = broker.url, timeoutMs = connectTimeoutMs) => {
      const logger = new RecordedLogs();
      const hints: Hint[] = [];
      const wakeup = adapter.create({ url, logger, reconnect, connectTimeoutMs: timeoutMs });
      open.push(wakeup);
      await wakeup.start((hint) => hints.push(hint));
      return { wakeup, hints, logger };
    };
    const untilUp = (wakeup: Wakeup) => eventually(() => expect(wakeup.status()).toEqual({ state: 'up' }));
    const untilDown = (wakeup: Wakeup) => eventually(() => expect(wakeup.status().state).toBe('down'));
    const untilHeard = (hints: readonly Hint[], expected: readonly Hint[]) =>
      eventually(() => expect(hints).toEqual(expected));

    beforeAll(async () => {
      broker = await adapter.broker();
    });
    afterEach(async () => {
      broker.resume();
      await Promise.all(open.splice(0).map((wakeup) => wakeup.stop()));
    });
    afterAll(() => broker[Symbol.asyncDispose]());

    it('broker down at start: start() resolves, one warning, publish drops the hint, stop is prompt', async () => {
      await broker.kill();
      const { wakeup, logger } = await listen();

      expect(wakeup.status()).toMatchObject({ state: 'down', reason: expect.stringMatching(/refused/i) });
      await wakeup.publish({ queue: 'labels', jobId: '1' });
      await eventually(() => expect(logger.at('debug').length).toBeGreaterThan(3));
      expect(logger.at('warn')).toHaveLength(1);
      expect(logger.at('info')).toHaveLength(0);

      await wakeup.stop();
      expect(wakeup.status()).toMatchObject({ state: 'down', reason: 'stopped' });
      const told = logger.lines.length;
      await new Promise((done) => setTimeout(done, 3 * reconnect.maxMs));
      expect(logger.lines).toHaveLength(told);
    });

    it('a password in the address is never logged', async () => {
      await broker.kill();
      const address = new URL(broker.url);
      const secret = address.href.replace(/\/\/(?:[^@/]*@)?/, '//tally:s3cr%40t-word@');
      const { wakeup, logger } = await listen(secret);

      await eventually(() => expect(logger.at('debug').length).toBeGreaterThan(1));
      const said = JSON.stringify([logger.lines, wakeup.status()]);
      expect(said).toContain(address.host);
      expect(said).not.toMatch(/s3cr|t-word/);
    });

    it('down at start, then up: connects, says so once, hints flow', {
      timeout: restartLimitMs,
    }, async () => {
      await broker.kill();
      const a = await listen();
      const b = await listen();
      expect(a.wakeup.status().state).toBe('down');

      await broker.start();
      await Promise.all([untilUp(a.wakeup), untilUp(b.wakeup)]);
      await a.wakeup.publish({ queue: 'labels', jobId: '7' });
      await untilHeard(b.hints, [{ queue: 'labels', jobId: '7' }]);
      expect(a.logger.at('warn')).toHaveLength(1);
      expect(a.logger.at('info')).toHaveLength(1);
    });

    it('a hint reaches every process, also the one that sent it', { timeout: restartLimitMs }, async () => {
      await broker.start();
      const a = await listen();
      const b = await listen();
      expect(a.wakeup.status()).toEqual({ state: 'up' });

      const hints: Hint[] = [
        { queue: 'labels', jobId: '42' },
        { queue: 'two words. and * > ünïcode 🏷', jobId: 'a-1' },
        { queue: 'labels' },
        { queue: null, jobId: '43' },
      ];
      for (const hint of hints) await a.wakeup.publish(hint);
      await untilHeard(b.hints, hints);
      await untilHeard(a.hints, hints);
      expect([...a.logger.at('warn'), ...b.logger.at('warn'), ...a.logger.at('debug')]).toEqual([]);
    });

    it('messages of other systems: job_id alone is enough, as text or number', {
      timeout: restartLimitMs,
    }, async () => {
      await broker.start();
      const { hints } = await listen();
      const bodies = [
        '{"job_id":"a-7"}',
        '{"job_id":7}',
        '{"job_id":9007199254740993}',
        '{"job_id":8,"more":[1]}',
      ];
      await adapter.sendRaw(
        broker.url,
        bodies.map((body) => Buffer.from(body)),
      );
      await untilHeard(hints, [
        { queue: null, jobId: 'a-7' },
        { queue: null, jobId: '7' },
        { queue: null },
        { queue: null, jobId: '8' },
      ]);
    });

    it('malformed messages are ignored and counted; what follows is heard', {
      timeout: restartLimitMs,
    }, async () => {
      await broker.start();
      const { wakeup, hints, logger } = await listen();
      const malformed = [
        '',
        'job 7',
        '{"job_id":',
        'null',
        '[]',
        '"7"',
        '{}',
        '{"job_id":null}',
        '{"job_id":""}',
        '{"job_id":true}',
        '{"job_id":1.5}',
        '{"job_id":{"id":7}}',
        '{"job_id":"7","queue":7}',
        `{"job_id":"${'7'.repeat(200_000)}"}`,
      ].map((body) => Buffer.from(body));
      malformed.push(Buffer.from([0xff, 0xfe, 0x00]));
      await adapter.sendRaw(broker.url, [...malformed, Buffer.from('{"job_id":"good"}')]);

      await untilHeard(hints, [{ queue: null, jobId: 'good' }]);
      expect(logger.at('debug').at(-1)?.fields).toMatchObject({ malformed: malformed.length });
      expect(logger.lines).toHaveLength(malformed.length);
      expect(wakeup.status()).toEqual({ state: 'up' });
    });

    it('a listener that throws loses its own hint and nothing else', {
      timeout: restartLimitMs,
    }, async () => {
      await broker.start();
      const logger = new RecordedLogs();
      const heard: Hint[] = [];
      const wakeup = adapter.create({ url: broker.url, logger, reconnect, connectTimeoutMs });
      open.push(wakeup);
      await wakeup.start((hint) => {
        if (hint.jobId === 'bad') throw new Error('the listener broke');
        heard.push(hint);
      });
      await wakeup.publish({ queue: 'labels', jobId: 'bad' });
      await wakeup.publish({ queue: 'labels', jobId: 'good' });
      await untilHeard(heard, [{ queue: 'labels', jobId: 'good' }]);
      expect(logger.lines.map((line) => line.level)).toEqual(['error']);
    });

    it('stop() then start() again listens again; a second start() is refused', {
      timeout: restartLimitMs,
    }, async () => {
      await broker.start();
      const { wakeup } = await listen();
      await expect(wakeup.start(() => {})).rejects.toMatchObject({ code: 'ALREADY_STARTED' });
      await wakeup.stop();
      await wakeup.stop();
      await wakeup.publish({ queue: 'labels' });

      const hints: Hint[] = [];
      await wakeup.start((hint) => hints.push(hint));
      await wakeup.publish({ queue: 'labels', jobId: '2' });
      await untilHeard(hints, [{ queue: 'labels', jobId: '2' }]);
    });

    it('stopped and started again: one warning, one info, hints flow', {
      timeout: 2 * restartLimitMs,
    }, async () => {
      await broker.start();
      const a = await listen();
      const b = await listen();

      await broker.stop();
      await untilDown(a.wakeup);
      await a.wakeup.publish({ queue: 'labels', jobId: 'dropped' });
      await eventually(() => expect(a.logger.at('debug').length).toBeGreaterThan(3));
      await broker.start();

      await Promise.all([untilUp(a.wakeup), untilUp(b.wakeup)]);
      await a.wakeup.publish({ queue: 'labels', jobId: 'after' });
      await untilHeard(b.hints, [{ queue: 'labels', jobId: 'after' }]);
      for (const { logger } of [a, b]) {
        expect(logger.at('warn')).toHaveLength(1);
        expect(logger.at('info')).toHaveLength(1);
      }
    });

    it('a frozen broker holds up neither start() nor stop()', { timeout: restartLimitMs }, async () => {
      await broker.start();
      const connected = await listen();
      broker.pause();
      await connected.wakeup.publish({ queue: 'labels' });
      await connected.wakeup.stop();

      const late = await listen(broker.url, shortTimeoutMs);
      expect(late.wakeup.status()).toMatchObject({
        state: 'down',
        reason: `no answer within ${shortTimeoutMs} ms`,
      });
      await late.wakeup.stop();

      broker.resume();
      const after = await listen();
      expect(after.wakeup.status()).toEqual({ state: 'up' });
    });

    describe('leaves nothing behind: a process that stopped its wake-up ends by itself', () => {
      const script = (url: string, body: string) => `
        const { ${adapter.source.factory}: create } = await import(${specifier(resolve(adapter.source.file))});
        const options = { reconnect: { minMs: 60000, maxMs: 60000 }, connectTimeoutMs: 60000 };
        const wakeup = create({ ${adapter.source.urlOption}: ${JSON.stringify(url)}, ...options });
        ${body}
        console.log('stopped');`;
      const startAndStop = `await wakeup.start(() => {}); await wakeup.publish({ queue: 'labels' }); await wakeup.stop();`;

      it('with the broker up', { timeout: restartLimitMs }, async () => {
        await broker.start();
        const run = await runAlone(script(broker.url, startAndStop), '.', 60_000);
        expect(run).toEqual({ exitCode: 0, output: 'stopped\n' });
      });

      it('with the broker frozen, in the middle of connecting', { timeout: restartLimitMs }, async () => {
        await broker.start();
        broker.pause();
        const body = `
          wakeup.start(() => {});
          await new Promise((done) => setTimeout(done, 300));
          await wakeup.stop();`;
        const run = await runAlone(script(broker.url, body), '.', 60_000);
        expect(run).toEqual({ exitCode: 0, output: 'stopped\n' });
      });

      it('with the broker down, in the middle of a long wait', async () => {
        await broker.kill();
        const run = await runAlone(script(broker.url, startAndStop), '.', 60_000);
        expect(run).toEqual({ exitCode: 0, output: 'stopped\n' });
      });
    });
  });
}
