import { expect, test } from 'vitest';
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
