import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ProducerFact } from '../../../../src/apps/boundary/sdk/fact.ts';
import * as sdk from '../../../../src/apps/boundary/sdk/index.ts';
import { messageId, messageIdOf, uuidV5 } from '../../../../src/apps/boundary/sdk/message-id.ts';

const fact: ProducerFact = { toZone: 'enterprise', subject: 'order:1', predicate: 'is', object: 1 };

test('BND-14: an id is the SHA-256 of length-delimited parts, the same on every run and machine', () => {
  expect(messageId('work_order', 'WO-ü')).toBe(
    createHash('sha256').update('10:work_order5:WO-ü').digest('hex'),
  );
  // Written down: it decides about duplicates forever.
  expect(messageId('work_order', 'WO-2026-001', 7, 8n)).toBe(
    '0bddf3be8aaf9f8954e7a291f2c4b59f5841ebcab05063fb86ff71f1eea0da54',
  );
  expect(() => messageId()).toThrow('at least one part');
  expect(() => messageId('\ud800')).toThrow('well-formed');
});

test('BND-14: other parts are another id, wherever the parts begin and end', () => {
  const text = fc.array(fc.string({ unit: 'grapheme' }), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(text, text, (a, b) => {
      expect(messageId(...a) === messageId(...b)).toBe(JSON.stringify(a) === JSON.stringify(b));
    }),
  );
  expect(messageId('ab', 'c')).not.toBe(messageId('a', 'bc'));
  expect(messageId('1:a')).not.toBe(messageId('1', 'a'));
});

test('BND-14: a UUID of version 5 is that of the standard', () => {
  // The example of RFC 9562, A.4.
  expect(uuidV5('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'www.example.com')).toBe(
    '2ed6657d-e927-568b-95e1-2665a8aea6a2',
  );
  expect(() => uuidV5('plant-a', 'x')).toThrow('a UUID as namespace');
});

test('BND-14: ids come from the fact, from a rule, and from nowhere else; a rule that is random is refused', () => {
  expect(messageIdOf({ ...fact, messageId: 'given' }, () => 'rule')).toBe('given');
  expect(messageIdOf(fact, ({ subject, predicate }) => messageId(subject, predicate))).toBe(
    messageId('order:1', 'is'),
  );
  expect(() => messageIdOf(fact, undefined)).toThrow('message_id is missing');
  let n = 0;
  expect(() => messageIdOf(fact, () => `id ${n++}`)).toThrow('comes out different each time');
  expect(Object.keys(sdk).filter((name) => /random|v4|v7/i.test(name))).toEqual([]);
});
