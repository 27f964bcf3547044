import { expect, test } from 'vitest';
import { TenantSlots } from '../../../src/apps/labels/worker/tenant-slots.ts';
import { until } from '../../support/until.ts';

/** Work that lasts until it is told to end. */
function scene(slots: TenantSlots) {
  const running: { readonly tenantId: string; readonly end: () => void }[] = [];
  const add = (tenantId: string, count: number) => {
    for (let nth = 0; nth < count; nth += 1)
      void slots.run(tenantId, async () => {
        const { promise, resolve } = Promise.withResolvers<void>();
        running.push({ tenantId, end: resolve });
        await promise;
      });
  };
  const of = (tenantId: string) => running.filter((one) => one.tenantId === tenantId);
  const end = (tenantId: string) => {
    const [one] = of(tenantId);
    if (one) running.splice(running.indexOf(one), 1);
    one?.end();
  };
  return { add, end, count: (tenantId: string) => of(tenantId).length };
}

test('SEC-5: a tenant gets half of the slots, the next half of the rest, and one is left for whoever comes', async () => {
  const { add, end, count } = scene(new TenantSlots(32));
  add('a', 100);
  await until('half of the slots are taken', () => count('a') === 16);
  for (const [tenantId, share] of [
    ['b', 8],
    ['c', 4],
    ['d', 2],
    ['e', 1],
    ['f', 1],
  ] as const) {
    add(tenantId, 100);
    await until(`${tenantId} has its share`, () => count(tenantId) === share);
  }
  expect(count('a')).toBe(16);
  // What is given back is kept for a tenant that has none.
  end('a');
  add('g', 100);
  await until('another tenant begins at once', () => count('g') === 1);
  expect(count('a')).toBe(15);
});

test('SEC-5: one slot is had by one after the other', async () => {
  const { add, end, count } = scene(new TenantSlots(1));
  add('a', 4);
  add('b', 1);
  await until('one runs', () => count('a') === 1);
  end('a');
  await until('who came first is next', () => count('a') === 1);
  end('a');
  await until('then the other tenant', () => count('b') === 1);
  end('b');
  await until('and the first again', () => count('a') === 1);
});
