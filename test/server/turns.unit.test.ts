import { expect, onTestFinished, test, vi } from 'vitest';
import { pausesBesideOthers } from '../../src/server/access/pauses.ts';
import { RecentTenants } from '../../src/server/access/recent-tenants.ts';
import { Turns } from '../../src/server/access/turns.ts';

/** Requests that end when told to, and the order in which they began. */
function requests(turns: Turns) {
  const began: string[] = [];
  const enders = new Map<string, () => void>();
  const send = (name: string): Promise<void> =>
    turns.run(name.slice(0, 1), async () => {
      began.push(name);
      await new Promise<void>((end) => enders.set(name, end));
    });
  const end = async (name: string): Promise<void> => {
    enders.get(name)?.();
    await new Promise(setImmediate);
  };
  return { began, send, end };
}

test('SEC-5: a tenant has its share of turns, whatever it sends; another one does not wait', async () => {
  const { began, send, end } = requests(new Turns({ total: 4, perTenant: 2, waiting: 10 }));
  const sent = ['a1', 'a2', 'a3', 'a4', 'b1'].map(send);
  await new Promise(setImmediate);
  expect(began).toEqual(['a1', 'a2', 'b1']);
  await end('a2');
  expect(began).toEqual(['a1', 'a2', 'b1', 'a3']);
  for (const name of ['a1', 'a3', 'a4', 'b1']) await end(name);
  await Promise.all(sent);
});

test('SEC-5: free turns go round the tenants that wait, and a newcomer does not pass them', async () => {
  const { began, send, end } = requests(new Turns({ total: 1, perTenant: 1, waiting: 10 }));
  const sent = ['a1', 'a2', 'a3', 'b1', 'c1', 'b2'].map(send);
  await new Promise(setImmediate);
  for (const name of ['a1', 'a2', 'b1', 'c1', 'a3', 'b2']) await end(name);
  await Promise.all(sent);
  expect(began).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2']);
});

test('SEC-5: a line has an end; failed requests give their turn back', async () => {
  const turns = new Turns({ total: 1, perTenant: 1, waiting: 1 });
  const { send, end } = requests(turns);
  const [first, second] = [send('a1'), send('a2')];
  await new Promise(setImmediate);
  await expect(send('a3')).rejects.toMatchObject({ code: 'TENANT_BUSY' });
  await end('a1');
  await end('a2');
  await Promise.all([first, second]);
  const failing = () => turns.run('a', () => Promise.reject(new Error('x')));
  for (let i = 0; i < 3; i += 1) await expect(failing()).rejects.toThrow('x');
});

test('SEC-5: beside others a tenant pauses after each turn, three times as long as it took; another one does not wait', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const recent = new RecentTenants();
  const pauseMs = pausesBesideOthers(recent, 25);
  const { began, send, end } = requests(new Turns({ total: 1, perTenant: 1, waiting: 10, pauseMs }));
  const pass = async (ms: number) => {
    await vi.advanceTimersByTimeAsync(ms);
    await new Promise(setImmediate);
  };
  recent.note('b');
  recent.note('a');
  const sent = ['a1', 'a2', 'a3'].map(send);
  await pass(20);
  await end('a1');
  await pass(59);
  sent.push(send('b1'));
  await pass(0);
  expect(began).toEqual(['a1', 'b1']);
  await end('b1');
  await pass(1);
  expect(began).toEqual(['a1', 'b1', 'a2']);
  // A long one waited for a lock: the pause has a limit.
  await pass(4_000);
  await end('a2');
  await pass(249);
  expect(began).toHaveLength(3);
  await pass(1);
  expect(began.at(-1)).toBe('a3');
  // Alone by now.
  await pass(1_000);
  await end('a3');
  sent.push(send('a4'));
  await pass(0);
  expect(began.at(-1)).toBe('a4');
  await end('a4');
  await Promise.all(sent);
});
