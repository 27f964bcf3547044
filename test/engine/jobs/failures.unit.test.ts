import { expect, test } from 'vitest';
import { PermanentError, RetryLater } from '../../../src/engine/errors.ts';
import { Claim, ClaimedJob } from '../../../src/engine/jobs/claim.ts';
import { describeThrown, readable, toFailure } from '../../../src/engine/jobs/failures.ts';

const hostile = new Proxy(
  {},
  {
    get: () => {
      throw new Error('no');
    },
    getPrototypeOf: () => {
      throw new Error('no');
    },
  },
);

test.each([
  ['undefined', undefined, 'ERROR', 'undefined'],
  ['null', null, 'ERROR', 'null'],
  ['a text', 'it broke', 'ERROR', 'it broke'],
  ['an empty text', '', 'ERROR', ''],
  ['a number', 42, 'ERROR', '42'],
  ['a bigint', 10n, 'ERROR', '10n'],
  ['a symbol', Symbol('s'), 'ERROR', 'Symbol(s)'],
  ['an object', { a: { b: 1 } }, 'ERROR', '{ a: { b: 1 } }'],
  ['an object with a code', { code: 'E_X' }, 'E_X', "{ code: 'E_X' }"],
  ['an object with a code that is no text', { code: 7 }, 'ERROR', '{ code: 7 }'],
  ['an object without a prototype', Object.create(null), 'ERROR', '[Object: null prototype] {}'],
  ['a NUL', 'a\0b', 'ERROR', 'a\ufffdb'],
  ['half of a surrogate pair', 'a\ud800b', 'ERROR', 'a\ufffdb'],
  ['a code with a NUL', { code: 'X\0' }, 'X\ufffd', "{ code: 'X\\x00' }"],
])('a handler may throw %s', (_, thrown, code, message) => {
  expect(describeThrown(readable(thrown))).toEqual({ code, message, stack: undefined });
});

test('of an Error its code, or else its name, its message and its stack are told', () => {
  const plain = describeThrown(new TypeError('wrong'));
  expect(plain).toMatchObject({ code: 'TypeError', message: 'wrong' });
  expect(plain.stack).toContain('failures.unit.test.ts');
  const coded = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
  expect(describeThrown(coded)).toMatchObject({ code: 'ECONNREFUSED', message: 'refused' });
});

test('an Error whose fields are not texts is told all the same', () => {
  const odd = Object.assign(new Error('x'), { message: { deep: true }, name: 7, stack: 1, code: '' });
  expect(describeThrown(readable(odd))).toEqual({ code: '7', message: '{ deep: true }', stack: undefined });
});

test('a circular object is told', () => {
  const circle: Record<string, unknown> = {};
  circle.self = circle;
  expect(describeThrown(readable(circle)).message).toContain('[Circular');
});

test('what is long is cut, also where that splits a character', () => {
  const { message, stack } = describeThrown(
    Object.assign(new Error(`${'x'.repeat(9999)}😀`), { stack: 'y'.repeat(50_000) }),
  );
  expect([message.length, stack?.length]).toEqual([10_000, 20_000]);
  expect(message.isWellFormed()).toBe(true);
});

test.each([
  ['a proxy that refuses every look', hostile],
  [
    'an Error whose message throws',
    Object.defineProperty(new Error('x'), 'message', {
      get: () => {
        throw new Error('no');
      },
    }),
  ],
  [
    'an object whose inspection throws',
    {
      [Symbol.for('nodejs.util.inspect.custom')]: () => {
        throw new Error('no');
      },
    },
  ],
])('%s is replaced', (_, thrown) => {
  expect(describeThrown(readable(thrown))).toMatchObject({
    ...{ code: 'Error', message: 'the handler threw something that cannot be read' },
  });
});

test('what can be read is left as it is', () => {
  const error = new Error('x');
  expect(readable(error)).toBe(error);
});

test('RetryLater says when, PermanentError that there is no use, everything else waits for its backoff', () => {
  const job = new ClaimedJob(new Claim('1', 1, 'q', 2), undefined, '1', 'k', null, 0);
  const backoff = (attempt: number) => attempt * 1000;
  expect(toFailure(job, new RetryLater(5), backoff)).toMatchObject({ delayMs: 5, permanent: false, cost: 1 });
  expect(toFailure(job, new PermanentError('NO', 'never'), backoff)).toMatchObject({ permanent: true });
  const { delayMs } = toFailure(job, 'text', backoff);
  expect(delayMs).toBeGreaterThanOrEqual(1000);
  expect(delayMs).toBeLessThanOrEqual(1100);
});
