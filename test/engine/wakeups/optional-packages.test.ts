import { cp, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runAlone, specifier } from '../../support/services/own-process.ts';
import { removeFolder, temporaryFolder } from '../../support/services/service.ts';

describe('optional packages', () => {
  let folder: string;

  beforeAll(async () => {
    // The sources alone, where no node_modules is in sight.
    folder = await temporaryFolder('bare');
    await mkdir(join(folder, 'engine'));
    for (const path of ['errors.ts', 'logger.ts', 'resilience', 'wakeups', 'locks']) {
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
      const { output } = await runAlone(code, folder, 60_000);
      expect(output).toMatch(/^TallymanError MISSING_PACKAGE /);
      expect(output).toContain(`run "npm install ${name}"`);
    },
  );
});
