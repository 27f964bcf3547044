import { expect, test } from 'vitest';
import { CrashIsolation } from '../../../src/engine/jobs/isolation.ts';

const none = { suspect: false, alone: false };
const suspects = { suspect: true, alone: false };
const both = { suspect: true, alone: true };

test('nothing is isolated where no claim has told of a crashed batch', () => {
  const isolation = new CrashIsolation();
  expect([isolation.isActive, isolation.next(1000), isolation.lookAgainIn(1000)]).toEqual([
    false,
    undefined,
    undefined,
  ]);
});

test('suspects start 100 ms apart', () => {
  const isolation = new CrashIsolation();
  isolation.found(suspects, 1000);
  expect(isolation.next(1000)).toBe('suspect');
  isolation.claimed('1', 'suspect', 1000);
  expect([isolation.next(1099), isolation.lookAgainIn(1050)]).toEqual([undefined, 50]);
  expect(isolation.next(1100)).toBe('suspect');
});

test('the next suspect starts at once when the one before it has ended', () => {
  const isolation = new CrashIsolation();
  isolation.found(suspects, 1000);
  isolation.claimed('1', 'suspect', 1000);
  expect(isolation.ended('1')).toBe(true);
  expect(isolation.next(1001)).toBe('suspect');
});

test('what must run alone goes before suspects, and nothing starts beside it', () => {
  const isolation = new CrashIsolation();
  isolation.found(both, 1000);
  expect(isolation.next(1000)).toBe('alone');
  isolation.claimed('1', 'alone', 1000);
  expect(isolation.next(60_000)).toBeUndefined();
  isolation.ended('1');
  expect(isolation.next(60_000)).toBe('alone');
});

test('suspects hold back for a second so that what must run alone can start, and then go on', () => {
  const isolation = new CrashIsolation();
  isolation.found(suspects, 1000);
  isolation.claimed('1', 'suspect', 1000);
  isolation.found(both, 1200);
  expect(isolation.next(1200)).toBeUndefined();
  isolation.found(both, 1900);
  expect(isolation.next(2199)).toBeUndefined();
  expect(isolation.next(2200)).toBe('suspect');
});

test('the second of holding back begins anew once nothing waits to run alone any more', () => {
  const isolation = new CrashIsolation();
  isolation.claimed('1', 'suspect', 0);
  isolation.found(both, 1000);
  isolation.found(suspects, 1500);
  isolation.found(both, 3000);
  expect([isolation.next(3500), isolation.next(4000)]).toEqual([undefined, 'suspect']);
});

test('a claim that found nothing is not repeated for 100 ms, nor before another claim tells of work', () => {
  const isolation = new CrashIsolation();
  isolation.found(suspects, 1000);
  isolation.foundNothing('suspect', 1000);
  expect([isolation.isActive, isolation.next(2000)]).toEqual([false, undefined]);
  isolation.found(suspects, 1050);
  expect([isolation.next(1099), isolation.lookAgainIn(1050)]).toEqual([undefined, 50]);
  expect(isolation.next(1100)).toBe('suspect');
});

test('it is active while isolated work runs here, and knows what is not isolated', () => {
  const isolation = new CrashIsolation();
  isolation.claimed('1', 'suspect', 0);
  isolation.found(none, 0);
  expect([isolation.isActive, isolation.ended('2'), isolation.ended('1'), isolation.ended('1')]).toEqual([
    ...[true, false, true, false],
  ]);
  expect(isolation.isActive).toBe(false);
});
