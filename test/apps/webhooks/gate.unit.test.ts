import { expect, test } from 'vitest';
import { Gate } from '../../../src/apps/webhooks/delivery/gate.ts';

test('WH-8: an endpoint has so much room and no more; who leaves makes some; others are not concerned', async () => {
  const gate = new Gate({ perEndpoint: 2, patienceMs: 10_000 });
  const calm = { isSuspect: false };
  const first = await gate.enter('1', calm);
  const second = await gate.enter('1', calm);
  expect([first, second]).not.toContain(undefined);
  expect(await gate.enter('2', calm)).toBeDefined();
  const waits = gate.enter('1', calm);
  first?.();
  first?.();
  expect(await waits).toBeDefined();
  const impatient = new Gate({ perEndpoint: 1, patienceMs: 1 });
  await impatient.enter('1', calm);
  expect(await impatient.enter('1', calm)).toBeUndefined();
});

test('WH-8: an endpoint that failed last has room for one, and nobody waits for it', async () => {
  const gate = new Gate({ perEndpoint: 5, patienceMs: 600_000 });
  const leave = await gate.enter('1', { isSuspect: true });
  expect(await gate.enter('1', { isSuspect: true })).toBeUndefined();
  leave?.();
  expect(await gate.enter('1', { isSuspect: true })).toBeDefined();
});

test('WH-8: who waits for an endpoint that fails meanwhile is sent away', async () => {
  const gate = new Gate({ perEndpoint: 1, patienceMs: 600_000 });
  const leave = await gate.enter('1', { isSuspect: false });
  const waits = gate.enter('1', { isSuspect: false });
  gate.dismiss('1');
  leave?.();
  expect(await waits).toBeUndefined();
  expect(await gate.enter('1', { isSuspect: false })).toBeDefined();
});

test('WH-8: those that are sent away come back one by one, not all at once, and within a minute', () => {
  const gate = new Gate({ perEndpoint: 5 });
  const delays = Array.from({ length: 5000 }, () => gate.delay('1', 1000, { isFailing: true }));
  expect(Math.min(...delays)).toBeGreaterThanOrEqual(999);
  expect(Math.max(...delays)).toBeLessThanOrEqual(61_001);
  const perSecond = new Map<number, number>();
  for (const delay of delays) {
    const second = Math.floor(delay / 1000);
    perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
  }
  expect(Math.max(...perSecond.values())).toBeLessThan(200);
});
