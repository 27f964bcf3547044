import { once } from 'node:events';
import { Code, ConnectError } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { HandOff } from '../../../src/apps/boundary/handoff/loop.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { until } from '../../support/until.ts';

test('BND-8: a step that is ended early changes neither the mode nor the trouble', async () => {
  let steps = 0;
  const handOff = new HandOff({
    stream: { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' },
    logger: silentLogger,
    retry: { minMs: 1, maxMs: 1 },
    once: async (_, signal) => {
      steps += 1;
      if (steps === 1) throw new ConnectError('no room', Code.ResourceExhausted);
      await once(signal, 'abort');
      return 0;
    },
  });
  handOff.start();
  await until('the second step is under way', () => steps === 2);
  await handOff.stop();
  expect([handOff.mode, handOff.trouble]).toEqual(['refused', expect.stringContaining('no room')]);
});
