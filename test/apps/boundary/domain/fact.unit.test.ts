import { describe, expect, test } from 'vitest';
import { checkFact, contentDigest, type FactInput } from '../../../../src/apps/boundary/domain/fact.ts';
import { recordOf } from '../../../../src/apps/boundary/domain/record.ts';
import { Zones } from '../../../../src/apps/boundary/domain/zones.ts';

const zones = new Zones(['plant-a', 'enterprise', 'lab']);
const digest = `sha256:${'0a'.repeat(32)}`;
const attachment = {
  bucket: 'batch-files',
  key: 'order-2026-03-06-001.pdf',
  digest,
  size: 48_213,
  media_type: 'application/pdf',
  file_name: 'order-2026-03-06-001.pdf',
};
const input = (changes: Partial<FactInput> = {}): FactInput => ({
  messageId: 'wo-2026-001/attachment/1',
  fromZone: 'Plant A',
  toZone: 'Enterprise',
  producedAt: Date.UTC(2026, 2, 6),
  correlationId: 'order-2026-03-06-001',
  labels: { line: '4', shift: '' },
  subject: 'work_order:WO-2026-001',
  predicate: 'has_batch_attachment',
  objectJson: JSON.stringify(attachment),
  ...changes,
});
const digestOf = (changes: Partial<FactInput> = {}): string =>
  contentDigest(checkFact(input(changes), zones));

describe('facts', () => {
  test("BND-2: an integrator's fact is taken, with zones as slugs and the object it names", () => {
    const fact = checkFact(input(), zones);
    expect(fact).toMatchObject({
      from: 'plant-a',
      to: 'enterprise',
      labels: { line: '4', shift: '' },
      reference: {
        bucket: 'batch-files',
        key: 'order-2026-03-06-001.pdf',
        digest,
        size: 48_213,
        mediaType: 'application/pdf',
        fileName: 'order-2026-03-06-001.pdf',
      },
    });
    const record = recordOf(fact, 17);
    // What is stored is read back and written again as the same bytes: the chain hash is over them.
    expect(JSON.stringify(JSON.parse(JSON.stringify(record)))).toBe(JSON.stringify(record));
  });

  test('BND-3: content is to_zone, subject, predicate, object and reference, and nothing else', () => {
    const same = digestOf();
    expect(digestOf({ producedAt: 1 })).toBe(same);
    expect(digestOf({ labels: { other: 'x' }, correlationId: undefined, causationId: 'c' })).toBe(same);
    expect(digestOf({ messageId: 'another' })).toBe(same);
    const turned = Object.fromEntries(Object.entries(attachment).reverse());
    expect(digestOf({ objectJson: JSON.stringify(turned, null, 2) })).toBe(same);
    const others = [
      same,
      digestOf({ toZone: 'lab' }),
      digestOf({ subject: 'work_order:WO-2026-002' }),
      digestOf({ predicate: 'has_attachment' }),
      digestOf({ objectJson: JSON.stringify({ ...attachment, size: 1 }) }),
      digestOf({ objectJson: '1' }),
      digestOf({ objectJson: '"1"' }),
      digestOf({ objectJson: '1', objectRef: { bucket: 'b', key: 'k', digest } }),
      digestOf({ objectJson: '1', objectRef: { bucket: 'b', key: 'k', digest, fileName: 'f' } }),
      digestOf({ objectJson: '1', objectRef: { bucket: 'b', key: 'k', digest, mediaType: 'f' } }),
    ];
    expect(new Set(others).size).toBe(others.length);
  });

  test('BND-3: the digest of a content never changes: it decides about duplicates forever', () => {
    expect(digestOf({ objectJson: '{"b":1.50,"a":"ü"}' })).toBe(
      '9b783c3ec6b96df519bf06d8848aa63de8a8a88d3d425f1b380ba2217ee31746',
    );
  });

  test.each<[string, Partial<FactInput>, string]>([
    ['no message id', { messageId: '' }, 'envelope.message_id is missing'],
    ['a long message id', { messageId: 'é'.repeat(200) }, 'at most 256 bytes, got 400'],
    ['a line break', { messageId: 'a\nb' }, 'envelope.message_id must not have control characters'],
    ['half a character', { messageId: '\ud800' }, 'envelope.message_id is not well-formed'],
    ['an unknown zone', { toZone: 'enterprice' }, 'did you mean "enterprise"?'],
    ['its own zone', { toZone: 'plant_a' }, 'must be another zone than from_zone'],
    ['a time before 1970', { producedAt: -1 }, 'envelope.produced_at_unix_ms must be'],
    ['a time that is none', { producedAt: Number.NaN }, 'envelope.produced_at_unix_ms'],
    ['seconds as nanoseconds', { producedAt: 1.7e18 }, 'envelope.produced_at_unix_ms'],
    ['a subject without a kind', { subject: ':1' }, 'fact.subject must be kind:id'],
    ['a subject without an id', { subject: 'order:' }, 'fact.subject must be kind:id'],
    ['a kind in capitals', { subject: 'Order:1' }, 'fact.subject must be kind:id'],
    ['a predicate in camel case', { predicate: 'movedTo' }, 'fact.predicate must be lower_snake_case'],
    ['a predicate with a space', { predicate: 'moved to' }, 'fact.predicate'],
    ['no object', { objectJson: '' }, 'fact.object_json is missing'],
    [
      'a large object',
      { objectJson: `"${'x'.repeat(600_000)}"` },
      'the limit is 524288. Store it with PutObject',
    ],
    ['a label name', { labels: { __proto: 'x' } }, 'envelope.labels has the name "__proto"'],
    ['a label value', { labels: { a: 'x'.repeat(2000) } }, 'envelope.labels["a"] must be at most 1024'],
    ['a bucket', { objectRef: { bucket: 'B', key: 'k', digest } }, 'fact.object_ref.bucket must be'],
    ['a digest', { objectRef: { bucket: 'b', key: 'k', digest: 'md5:1' } }, 'fact.object_ref.digest must be'],
    [
      'a digest inside',
      { objectJson: '{"bucket":"b","key":"k","digest":"x"}' },
      'fact.object_json.digest must be',
    ],
    [
      'two references',
      { objectRef: { bucket: 'b', key: 'k', digest } },
      'names another object than fact.object_json',
    ],
  ])('BND-13: %s is refused, and the field is named', (_, changes, message) => {
    expect(() => checkFact(input(changes), zones)).toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT', message: expect.stringContaining(message) }),
    );
  });

  test('BND-6: JSON that only looks a little like a reference is plain JSON', () => {
    for (const objectJson of [
      '{"digest":"x"}',
      '{"bucket":1,"key":"k","digest":"x"}',
      '["digest"]',
      '"digest"',
    ])
      expect(checkFact(input({ objectJson }), zones).reference).toBeUndefined();
  });
});
