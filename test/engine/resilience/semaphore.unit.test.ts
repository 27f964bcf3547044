import { describe, expect, it } from 'vitest';
import { Semaphore } from '../../../src/engine/resilience/semaphore.ts';

/** Work that ends when it is told to, and what has begun. */
function works(semaphore: Semaphore) {
  const begun: string[] = [];
  const start = (name: string, signal?: AbortSignal) => {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const ended = semaphore.run(() => {
      begun.push(name);
      return promise;
    }, signal);
    ended.catch(() => {});
    return { ended, finish: () => resolve(name), fail: () => reject(new Error(name)) };
  };
  return { begun, start };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('semaphore', () => {
  it('runs so many at once, the others in the order they came', async () => {
    const { begun, start } = works(new Semaphore(2));
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => start(name));
    await settled();
    expect(begun).toEqual(['a', 'b']);
    b?.finish();
    await settled();
    expect(begun).toEqual(['a', 'b', 'c']);
    for (const each of [a, c, d]) each?.finish();
    expect(await Promise.all([a, b, c, d].map((each) => each?.ended))).toEqual(['a', 'b', 'c', 'd']);
  });

  it('work that fails gives its slot back', async () => {
    const { begun, start } = works(new Semaphore(1));
    const a = start('a');
    const b = start('b');
    a.fail();
    await expect(a.ended).rejects.toThrow('a');
    b.finish();
    expect(await b.ended).toBe('b');
    expect(begun).toEqual(['a', 'b']);
  });

  it('one that gives up leaves the line, and costs no slot', async () => {
    const { begun, start } = works(new Semaphore(1));
    const stop = new AbortController();
    const a = start('a');
    const b = start('b', stop.signal);
    const c = start('c', stop.signal);
    const d = start('d');
    stop.abort(new Error('enough'));
    for (const each of [b, c]) await expect(each.ended).rejects.toThrow('enough');
    await expect(start('e', stop.signal).ended).rejects.toThrow('enough');
    a.finish();
    d.finish();
    expect(await d.ended).toBe('d');
    expect(begun).toEqual(['a', 'd']);
  });

  it('a latecomer does not overtake the one whose turn it is', async () => {
    const semaphore = new Semaphore(1);
    const { begun, start } = works(semaphore);
    const a = start('a');
    const b = start('b');
    a.finish();
    await a.ended;
    const late = start('late');
    await settled();
    expect(begun).toEqual(['a', 'b']);
    b.finish();
    late.finish();
    await late.ended;
  });
});
