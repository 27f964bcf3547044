import { expect, test } from 'vitest';
import { Gate } from '../../../src/apps/webhooks/delivery/gate.ts';

const to = (endpoint: string, tenant = 'a') => ({ endpoint, tenant });
const calm = { isSuspect: false };

test('WH-8: an endpoint has so much room and no more; who leaves makes some; others are not concerned', async () => {
  const gate = new Gate({ perEndpoint: 2, patienceMs: 10_000 });
  const first = await gate.enter(to('1'), calm);
  const second = await gate.enter(to('1'), calm);
  expect([first, second]).not.toContain(undefined);
  expect(await gate.enter(to('2'), calm)).toBeDefined();
  const waits = gate.enter(to('1'), calm);
  first?.();
  first?.();
  expect(await waits).toBeDefined();
  const impatient = new Gate({ perEndpoint: 1, patienceMs: 1 });
  await impatient.enter(to('1'), calm);
  expect(await impatient.enter(to('1'), calm)).toBeUndefined();
});

test('WH-8: an endpoint that failed last has room for one, and nobody waits for it', async () => {
  const gate = new Gate({ perEndpoint: 5, patienceMs: 600_000 });
  const leave = await gate.enter(to('1'), { isSuspect: true });
  expect(await gate.enter(to('1'), { isSuspect: true })).toBeUndefined();
  leave?.();
  expect(await gate.enter(to('1'), { isSuspect: true })).toBeDefined();
});

test('WH-8: who waits for an endpoint that fails meanwhile is sent away', async () => {
  const gate = new Gate({ perEndpoint: 1, patienceMs: 600_000 });
  const leave = await gate.enter(to('1'), { isSuspect: false });
  const waits = gate.enter(to('1'), { isSuspect: false });
  gate.dismiss('1');
  leave?.();
  expect(await waits).toBeUndefined();
  expect(await gate.enter(to('1'), { isSuspect: false })).toBeDefined();
});

test('WH-8: those that are sent away come back one by one, not all at once, and within a minute', () => {
  const gate = new Gate({ perEndpoint: 5 });
  const delays = Array.from({ length: 5000 }, () => gate.delay(to('1'), 1000, { isFailing: true }));
  expect(Math.min(...delays)).toBeGreaterThanOrEqual(999);
  expect(Math.max(...delays)).toBeLessThanOrEqual(61_001);
  const perSecond = new Map<number, number>();
  for (const delay of delays) {
    const second = Math.floor(delay / 1000);
    perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
  }
  expect(Math.max(...perSecond.values())).toBeLessThan(200);
});

test('SEC-5: one tenant leaves slots for others, however many endpoints it has; each share is given back', async () => {
  const gate = new Gate({ perEndpoint: 5, slots: 50 });
  const fill = async (tenant: string): Promise<(() => void)[]> => {
    const left: (() => void)[] = [];
    for (let n = 0; n < 100; n += 1) {
      const leave = await gate.enter(to(`${tenant}${n % 20}`, tenant), calm);
      if (leave) left.push(leave);
    }
    return left;
  };
  const greedy = await fill('greedy');
  expect(greedy).toHaveLength(38);
  const [other, third] = [await fill('other'), await fill('third')];
  expect([other.length, third.length]).toEqual([9, 3]);
  expect(await gate.enter(to('n', 'new'), calm)).toBeDefined();
  for (const leave of greedy) for (const _ of [1, 2]) leave();
  expect((await fill('other')).length).toBeGreaterThan(10);
  expect(await gate.enter(to('n', 'new'), calm)).toBeDefined();
});

test('SEC-5: deliveries that wait for their tenant come back spread over time, whatever their endpoints are', async () => {
  const gate = new Gate({ perEndpoint: 5, slots: 4 });
  for (const endpoint of ['1', '2', '3']) await gate.enter(to(endpoint), calm);
  expect(await gate.enter(to('4'), calm)).toBeUndefined();
  await new Promise((resolve) => setTimeout(resolve, 50));
  const delays = Array.from({ length: 20 }, (_, n) => gate.delay(to(`e${n}`), 1000, { isFailing: false }));
  expect(delays.at(-1)).toBeGreaterThan(1250);
});
