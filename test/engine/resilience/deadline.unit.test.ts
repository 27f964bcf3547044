import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { deadline, endsWithin, orAborted, pause, within } from '../../../src/engine/resilience/deadline.ts';

const never = new Promise<never>(() => {});

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('within', () => {
  it('ends what is late, and leaves no timer behind', async () => {
    const late = expect(within(never, 20)).rejects.toThrow('no answer within 20 ms');
    await vi.advanceTimersByTimeAsync(19);
    expect(vi.getTimerCount()).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    await late;
    expect(vi.getTimerCount()).toBe(0);
  });

  it('passes on what is in time, good or bad, and leaves no timer behind', async () => {
    await expect(within(Promise.resolve(7), 60_000)).resolves.toBe(7);
    await expect(within(Promise.reject(new Error('no')), 60_000)).rejects.toThrow('no');
    expect(vi.getTimerCount()).toBe(0);
  });

  it('gives up with the reason of its signal, at once, and leaves no timer behind', async () => {
    const stop = new AbortController();
    const waiting = expect(within(never, 60_000, stop.signal)).rejects.toThrow('stopped');
    stop.abort(new Error('stopped'));
    await waiting;
    await expect(within(never, 60_000, stop.signal)).rejects.toThrow('stopped');
    expect(vi.getTimerCount()).toBe(0);
  });

  it('what fails after it was given up on is not an unhandled rejection', async () => {
    const { promise, reject } = Promise.withResolvers<never>();
    const waiting = expect(within(promise, 10)).rejects.toThrow('no answer');
    await vi.advanceTimersByTimeAsync(10);
    await waiting;
    reject(new Error('too late'));
    await vi.advanceTimersByTimeAsync(1);
  });
});

describe('endsWithin', () => {
  it('says whether it ended, well or badly', async () => {
    expect(await endsWithin(Promise.resolve(), 10)).toBe(true);
    expect(await endsWithin(Promise.reject(new Error('no')), 10)).toBe(true);
    const late = endsWithin(never, 10);
    await vi.advanceTimersByTimeAsync(10);
    expect(await late).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('orAborted', () => {
  it('one caller gives up; the work goes on for the others', async () => {
    const { promise, resolve } = Promise.withResolvers<number>();
    const [one, other] = [new AbortController(), new AbortController()];
    const gaveUp = expect(orAborted(promise, one.signal)).rejects.toThrow('enough');
    const stayed = orAborted(promise, other.signal);
    one.abort(new Error('enough'));
    await gaveUp;
    resolve(7);
    expect(await stayed).toBe(7);
  });

  it('a signal that has fired wins over work that is done', async () => {
    await expect(orAborted(Promise.resolve(7), AbortSignal.abort(new Error('enough')))).rejects.toThrow(
      'enough',
    );
  });
});

describe('pause', () => {
  it('lasts its time, or until the signal fires; it never rejects', async () => {
    const stop = new AbortController();
    let ended = 0;
    const count = (): void => {
      ended += 1;
    };
    const pauses = [pause(100).then(count), pause(100, stop.signal).then(count)];
    await vi.advanceTimersByTimeAsync(99);
    expect(ended).toBe(0);
    stop.abort();
    await vi.advanceTimersByTimeAsync(0);
    expect(ended).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    await Promise.all(pauses);
    await pause(60_000, stop.signal);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('deadline', () => {
  it('fires with its own error when it is late, with the reason of the signal before', async () => {
    const late = deadline(100, new AbortController().signal, () => new Error('late'));
    await vi.advanceTimersByTimeAsync(100);
    expect(late.signal.reason).toEqual(new Error('late'));
    const stop = new AbortController();
    const stopped = deadline(100, stop.signal, () => new Error('late'));
    stop.abort(new Error('stopped'));
    expect(stopped.signal.reason).toEqual(new Error('stopped'));
    stopped.clear();
    expect(vi.getTimerCount()).toBe(0);
  });
});
