import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LaneLock } from '../../../src/engine/locks/lane-lock.ts';
import { redisLaneLock } from '../../../src/engine/locks/redis.ts';
import { eventually } from '../../support/eventually.ts';
import { RecordedLogs } from '../../support/services/logs.ts';
import { runAlone, specifier } from '../../support/services/own-process.ts';
import { privateRedis } from '../../support/services/redis.ts';
import type { Service } from '../../support/services/service.ts';

const minute = 60_000;
const prefix = 'tallyman:lane:';

describe('LANE-7: lane holders in Redis', () => {
  let server: Service;
  let admin: Redis;
  const open: LaneLock[] = [];

  const holder = (options: Partial<Parameters<typeof redisLaneLock>[0]> = {}) => {
    const logger = new RecordedLogs();
    // By default it goes on without Redis after 250 ms, which a busy machine may need.
    const lock = redisLaneLock({ url: server.url, logger, timeoutMs: 30_000, ...options });
    open.push(lock);
    return { lock, logger };
  };
  /** Asks again until Redis has its say: a granted key that Redis knows of. */
  const untilLocking = (lock: LaneLock) =>
    eventually(async () => {
      await lock.acquire(['probe'], minute);
      expect(await admin.exists(`${prefix}probe`)).toBe(1);
      await lock.release(['probe']);
    });

  beforeAll(async () => {
    server = await privateRedis();
  });
  beforeEach(async () => {
    await server.start();
    admin = new Redis(server.url, { maxRetriesPerRequest: null });
    admin.on('error', () => {});
    await admin.flushall();
  });
  afterEach(async () => {
    server.resume();
    await Promise.all(open.splice(0).map((lock) => lock.stop()));
    admin.disconnect();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  it('LANE-7: a lane has one holder; the others are refused until it is released', async () => {
    const [a, b] = [holder(), holder()];
    expect(await a.lock.acquire(['x', 'y'], minute)).toEqual({ granted: ['x', 'y'], refused: [] });
    expect(await b.lock.acquire(['x', 'y', 'z'], minute)).toEqual({ granted: ['z'], refused: ['x', 'y'] });
    await a.lock.release(['x']);
    expect(await b.lock.acquire(['x', 'y'], minute)).toEqual({ granted: ['x'], refused: ['y'] });
    expect([...a.logger.lines, ...b.logger.lines]).toEqual([]);
  });

  it('LANE-7: of many holders that ask at once, one gets each lane', async () => {
    const lanes = Array.from({ length: 50 }, (_, i) => `lane ${i}`);
    const grants = await Promise.all(Array.from({ length: 8 }, () => holder().lock.acquire(lanes, minute)));
    expect(grants.flatMap((grant) => grant.granted).sort()).toEqual([...lanes].sort());
  });

  it('LANE-7: the holder may ask again, which extends what it has', async () => {
    const { lock } = holder();
    await lock.acquire(['x'], 1_000);
    expect(await lock.acquire(['x', 'x'], minute)).toEqual({ granted: ['x'], refused: [] });
    expect(await admin.pttl(`${prefix}x`)).toBeGreaterThan(10_000);
  });

  it('LANE-7: a lane whose holder does not renew is free when its time is up', async () => {
    const [a, b] = [holder(), holder()];
    await a.lock.acquire(['x', 'y'], 2_000);
    await a.lock.renew(['y'], minute);
    await eventually(async () => {
      expect(await b.lock.acquire(['x', 'y'], minute)).toEqual({ granted: ['x'], refused: ['y'] });
    });
    expect(await a.lock.renew(['x', 'y'], minute)).toEqual(['x']);
  });

  it('LANE-7: renewal extends what is ours, tells what is not, and takes nothing', async () => {
    const [a, b] = [holder(), holder()];
    await a.lock.acquire(['mine'], minute);
    await b.lock.acquire(['theirs'], minute);
    expect(await a.lock.renew(['mine', 'theirs', 'nobodys'], 10 * minute)).toEqual(['theirs', 'nobodys']);
    expect(await admin.pttl(`${prefix}mine`)).toBeGreaterThan(2 * minute);
    expect(await admin.pttl(`${prefix}theirs`)).toBeLessThanOrEqual(minute);
    expect(await admin.exists(`${prefix}nobodys`)).toBe(0);
  });

  it("LANE-7: release frees our own lanes, never another holder's", async () => {
    const [a, b] = [holder(), holder()];
    await a.lock.acquire(['x'], minute);
    await b.lock.release(['x']);
    expect(await admin.exists(`${prefix}x`)).toBe(1);
    await a.lock.release(['x']);
    expect(await admin.exists(`${prefix}x`)).toBe(0);
  });

  it('LANE-7: many lanes are taken, renewed and released in a few round trips', async () => {
    const { lock } = holder();
    const lanes = Array.from({ length: 1_203 }, (_, i) => `lane ${i}`);
    expect((await lock.acquire(lanes, minute)).granted).toEqual(lanes);
    await admin.del(`${prefix}lane 0`, `${prefix}lane 700`, `${prefix}lane 1202`);
    await admin.config('RESETSTAT');
    expect(await lock.renew(lanes, minute)).toEqual(['lane 0', 'lane 700', 'lane 1202']);
    await lock.release(lanes);
    expect(await admin.dbsize()).toBe(0);
    // 500 lanes a script: three to renew, three to release, whatever the number of lanes.
    expect(await admin.info('commandstats')).toMatch(/cmdstat_eval:calls=6,/);
  });

  it('LANE-7: Redis wiped: renewal says that all is lost, and the lanes can be taken again', async () => {
    const [a, b] = [holder(), holder()];
    await a.lock.acquire(['x', 'y'], minute);
    await admin.flushall();
    expect(await a.lock.renew(['x', 'y'], minute)).toEqual(['x', 'y']);
    expect((await b.lock.acquire(['x'], minute)).granted).toEqual(['x']);
    await a.lock.release(['x']);
    expect((await b.lock.renew(['x'], minute)).length).toBe(0);
  });

  it('LANE-7: Redis down from the start: all is granted, with one warning', async () => {
    await server.kill();
    const { lock, logger } = holder();
    expect(await lock.acquire(['x'], minute)).toEqual({ granted: ['x'], refused: [] });
    expect(await lock.renew(['x'], minute)).toEqual([]);
    await lock.release(['x']);
    expect(logger.at('warn')).toHaveLength(1);
    expect(logger.at('warn')[0]?.fields).toMatchObject({ reason: expect.stringContaining('ECONNREFUSED') });
  });

  it('LANE-7: Redis restarted under us: granted meanwhile, locked again after, one warning, one info', async () => {
    const [a, b] = [holder(), holder()];
    await a.lock.acquire(['x'], minute);
    await server.stop();
    expect(await b.lock.acquire(['x', 'y'], minute)).toEqual({ granted: ['x', 'y'], refused: [] });
    expect(await b.lock.acquire(['z'], minute)).toEqual({ granted: ['z'], refused: [] });
    await server.start();

    await untilLocking(b.lock);
    expect((await b.lock.acquire(['w'], minute)).granted).toEqual(['w']);
    await untilLocking(a.lock);
    expect((await a.lock.acquire(['w'], minute)).refused).toEqual(['w']);
    expect(b.logger.at('warn')).toHaveLength(1);
    expect(b.logger.at('info')).toHaveLength(1);
  });

  it('LANE-7: Redis frozen: granted within the timeout, nothing piles up, locked again after', async () => {
    const [a, b] = [holder(), holder({ timeoutMs: 1_000 })];
    await a.lock.acquire(['x'], minute);
    await b.lock.acquire(['other'], minute);
    server.pause();
    const asked = Promise.all(Array.from({ length: 20 }, () => b.lock.acquire(['x', 'y'], minute)));
    // Two timers of one process, far apart: which one fires first does not depend on its speed.
    expect(await Promise.race([asked.then(() => 'granted'), sleep(10_000, 'late')])).toBe('granted');
    for (const grant of await asked) expect(grant).toEqual({ granted: ['x', 'y'], refused: [] });
    for (let i = 0; i < 1_000; i++) await b.lock.acquire([`lane ${i}`], minute);
    expect(await b.lock.renew(['other'], minute)).toEqual([]);
    expect(b.logger.at('warn')).toHaveLength(1);
    server.resume();

    await untilLocking(b.lock);
    expect((await b.lock.acquire(['x'], minute)).refused).toEqual(['x']);
    expect(b.logger.at('warn')).toHaveLength(1);
    expect(b.logger.at('info')).toHaveLength(1);
    expect(await admin.keys(`${prefix}lane *`)).toEqual([]);
  });

  it('LANE-7: Redis that errs: all is granted, one warning, back by itself', async () => {
    const { lock, logger } = holder();
    await lock.acquire(['x'], minute);
    await admin.config('SET', 'maxmemory', '1');
    expect(await lock.acquire(['y'], minute)).toEqual({ granted: ['y'], refused: [] });
    expect(await lock.acquire(['z'], minute)).toEqual({ granted: ['z'], refused: [] });
    expect(logger.at('warn').map((line) => line.fields)).toEqual([
      expect.objectContaining({ reason: expect.stringContaining('OOM') }),
    ]);
    await admin.config('SET', 'maxmemory', '0');
    await lock.acquire(['y'], minute);
    expect(await admin.exists(`${prefix}y`)).toBe(1);
    expect(logger.at('info')).toHaveLength(1);
  });

  it('LANE-7: a lane granted without Redis is taken in it at the next renewal, unless another has it', async () => {
    const [a, b] = [holder(), holder()];
    await server.kill();
    await a.lock.acquire(['x', 'y'], minute);
    await server.start();
    await untilLocking(b.lock);
    await b.lock.acquire(['y'], minute);

    await untilLocking(a.lock);
    expect(await a.lock.renew(['x', 'y'], minute)).toEqual(['y']);
    expect((await b.lock.acquire(['x'], minute)).refused).toEqual(['x']);
  });

  it('LANE-7: a lane let go of while Redis was frozen does not stay taken until it expires', async () => {
    const [a, b] = [holder({ timeoutMs: 1_000 }), holder()];
    await a.lock.acquire(['x', 'y', 'z'], minute);
    server.pause();
    await a.lock.acquire(['w'], minute);
    await a.lock.release(['x', 'y', 'z']);
    await a.lock.acquire(['z'], minute);
    server.resume();
    await eventually(async () => expect((await b.lock.acquire(['x', 'y'], minute)).refused).toEqual([]));
    expect((await b.lock.acquire(['z'], minute)).refused).toEqual(['z']);
  });

  it('LANE-7: after stop() it grants, in silence; stop() twice is once', async () => {
    const { lock, logger } = holder();
    await lock.acquire(['x'], minute);
    await Promise.all([lock.stop(), lock.stop()]);
    expect(await lock.acquire(['y'], minute)).toEqual({ granted: ['y'], refused: [] });
    expect(logger.lines).toEqual([]);
  });

  it('LANE-7: no password is logged, no bad address accepted', async () => {
    await server.kill();
    const { lock, logger } = holder({ url: server.url.replace('//', '//tally:s3cret@') });
    await lock.acquire(['x'], minute);
    expect(logger.at('warn')).toHaveLength(1);
    expect(JSON.stringify(logger.lines)).not.toContain('s3cret');
    expect(() => redisLaneLock({ url: 'tally:s3cret@host' })).toThrow(
      /^redisLaneLock: url must be (?!.*s3cret)/,
    );
  });

  it.each(['up', 'down', 'frozen'])(
    'LANE-7: a process that stopped its lock ends by itself, Redis %s',
    async (state) => {
      if (state === 'down') await server.kill();
      if (state === 'frozen') server.pause();
      const code = `
      const { redisLaneLock } = await import(${specifier(resolve('src/engine/locks/redis.ts'))});
      const lock = redisLaneLock({ url: ${JSON.stringify(server.url)} });
      await lock.acquire(['x'], 60000);
      await lock.stop();
      console.log('stopped');`;
      expect(await runAlone(code, '.', 60_000)).toEqual({ exitCode: 0, output: 'stopped\n' });
    },
  );
});
