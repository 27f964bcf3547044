import { expect, test } from 'vitest';
import { broker, publisher } from '../apps/iot/mqtt/support.ts';
import { complaint, start } from '../cli/support.ts';
import { until } from '../support/engine.ts';

const simulate = (...args: string[]) => start('src/cli/main.ts', ['simulate', 'readers', ...args]).ended;

test('simulate readers: publishes at QoS 2, and tells the truth about it; the same for the same seed', async () => {
  const { port, url } = await broker();
  const client = await publisher(port);
  let messages = 0;
  let reads = 0;
  client.on('message', (_, payload, packet) => {
    expect(packet.qos).toBe(2);
    messages += 1;
    const message = JSON.parse(payload.toString());
    reads += Array.isArray(message) ? message.length : (message.data.tagData?.length ?? 1);
  });
  await client.subscribeAsync('zebra/fx/+/reads', { qos: 2 });
  const args = ['--broker', url, '--seed', '3', '--count', '400', '--rate', '2000', '--json'];
  const first = await simulate(...args);
  expect({ code: first.code, stderr: first.stderr }).toEqual({ code: 0, stderr: '' });
  const truth = JSON.parse(first.stdout);
  expect(truth.distinctReads).toBeGreaterThanOrEqual(400);
  expect(truth).toMatchObject({ seed: 3, acknowledged: truth.messages, unacknowledged: 0, damaged: 0 });
  await until('all have come', () => messages === truth.messages);
  expect(reads).toBe(truth.reads);
  expect(JSON.parse((await simulate(...args)).stdout)).toEqual(truth);
  const plain = await simulate('--broker', url, '--for', '500ms');
  expect(plain.stdout).toMatch(/^To be found: \d+ reads, \d+ baskets, \d+ movements\.$/m);
});

test.each([
  { args: ['--duplicates', '2'], code: 2, says: 'Expected a share from 0 to 1' },
  { args: ['--for', 'ever'], code: 2, says: 'Expected a time such as' },
  { args: ['--broker', 'mqtt://127.0.0.1:1'], code: 1, says: 'mqtt://127.0.0.1:1 cannot be used' },
])('simulate readers $args: one message', async ({ args, code, says }) => {
  const ended = await simulate(...args);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(code);
});
