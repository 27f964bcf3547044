import { cp, mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addressOf, backoffMs, within } from '../../../src/engine/wakeups/reconnect.ts';
import { runAlone, specifier } from '../../support/services/own-process.ts';
import { removeFolder, temporaryFolder } from '../../support/services/service.ts';

describe('reconnect', () => {
  it('waits twice as long after each failure, up to the limit, and never two processes in step', () => {
    const limits = { minMs: 100, maxMs: 1_000 };
    const waits = (random: number) =>
      [0, 1, 2, 3, 4, 5_000].map((failures) => backoffMs(failures, limits, () => random));
    expect(waits(1)).toEqual([100, 200, 400, 800, 1_000, 1_000]);
    expect(waits(0)).toEqual([50, 100, 200, 400, 500, 500]);
    expect(backoffMs(0, { minMs: 5_000, maxMs: 1_000 }, () => 1)).toBe(1_000);
  });

  it('a time limit ends what is late, and leaves no timer behind what is not', async () => {
    await expect(within(new Promise(() => {}), 20)).rejects.toThrow('no answer within 20 ms');
    await expect(within(Promise.resolve(7), 60_000)).resolves.toBe(7);
    const code = `
      const { within } = await import(${specifier(resolve('src/engine/wakeups/reconnect.ts'))});
      console.log(await within(Promise.resolve(7), 60000));`;
    expect(await runAlone(code, '.', 4_000)).toEqual({ exitCode: 0, output: '7\n' });
  });

  it('an address that is logged has no user, password or query', () => {
    expect(addressOf('amqp://tally:s3cret@host:5672/plant?password=s3cret')).toBe('amqp://host:5672/plant');
    expect(addressOf('redis://:s3cret@host/')).toBe('redis://host');
    expect(addressOf('tally:s3cret@host')).not.toContain('s3cret');
    expect(addressOf('redis://tally:12/s3cret@host')).not.toContain('s3cret');
    expect(addressOf('//tally:s3cret@host')).not.toContain('s3cret');
  });
});

describe('optional packages', () => {
  let folder: string;

  beforeAll(async () => {
    // The sources alone, where no node_modules is in sight.
    folder = await temporaryFolder('bare');
    await mkdir(join(folder, 'engine'));
    for (const path of ['errors.ts', 'logger.ts', 'wakeups', 'locks']) {
      await cp(join('src/engine', path), join(folder, 'engine', path), { recursive: true });
    }
  });
  afterAll(() => removeFolder(folder));

  it.each([
    ['wakeups/rabbitmq.ts', 'rabbitmqWakeup', `{ url: 'amqp://127.0.0.1:1' }`, 'amqplib'],
    ['wakeups/nats.ts', 'natsWakeup', `{ servers: '127.0.0.1:1' }`, '@nats-io/transport-node'],
    ['locks/redis.ts', 'redisLaneLock', `{ url: 'redis://127.0.0.1:1' }`, 'ioredis'],
  ])(
    '%s loads without its package, and says what to install when used',
    async (file, factory, options, name) => {
      const code = `
      const { ${factory}: create } = await import(${specifier(join(folder, 'engine', file))});
      try {
        await create(${options}).start(() => {});
      } catch (error) {
        console.log(error.name, error.code, error.message);
      }`;
      const { output } = await runAlone(code, folder, 10_000);
      expect(output).toMatch(/^TallymanError MISSING_PACKAGE /);
      expect(output).toContain(`run "npm install ${name}"`);
    },
  );
});
