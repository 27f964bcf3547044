import { describe, expect, test } from 'vitest';
import { checkDelivery, startFrontier } from '../../../../src/apps/boundary/domain/delivery.ts';
import { checkFact, contentDigest } from '../../../../src/apps/boundary/domain/fact.ts';
import { type FactRecord, recordOf } from '../../../../src/apps/boundary/domain/record.ts';
import { recordProblem } from '../../../../src/apps/boundary/domain/record-check.ts';
import { Zones } from '../../../../src/apps/boundary/domain/zones.ts';
import { nextChain } from '../../../../src/engine/log/entry.ts';

const zones = new Zones(['plant-a', 'enterprise']);
const digest = `sha256:${'0a'.repeat(32)}`;
const record: FactRecord = recordOf(
  checkFact(
    {
      messageId: 'm1',
      fromZone: 'plant-a',
      toZone: 'enterprise',
      producedAt: 0,
      correlationId: 'c',
      causationId: 'd',
      labels: { line: '4', shift: '' },
      subject: 'order:1',
      predicate: 'is',
      objectJson: JSON.stringify({
        bucket: 'files',
        key: 'k',
        digest,
        numbers: [1e20, 0.1],
        text: 'ü\u0000',
      }),
    },
    zones,
  ),
  1,
);
const epoch = '5b6f5be1-71e9-4d5c-b1a1-6a5f0c9f2a01';
const whole: FactRecord = {
  ...record,
  standsFor: { epoch, offset: 1, messageId: 'm0' },
  formerIds: ['m0'],
};

const bad: readonly (readonly [Readonly<Record<string, unknown>>, string])[] = [
  [{ gap: { reason: 'x', message: 'y', messageId: 'z' } }, 'gap'],
  [{ gap: null }, 'gap'],
  [{ messageId: 7 }, 'messageId'],
  [{ messageId: 'x'.repeat(257) }, 'messageId'],
  [{ acceptedAt: undefined }, 'acceptedAt'],
  [{ acceptedAt: '1' }, 'acceptedAt'],
  [{ producedAt: 1.5 }, 'producedAt'],
  [{ producedAt: -1 }, 'producedAt'],
  [{ producedAt: 1e15 }, 'producedAt'],
  [{ correlationId: null }, 'correlationId'],
  [{ causationId: 'a\u0000b' }, 'causationId'],
  [{ labels: 'line 4' }, 'labels'],
  [{ labels: ['4'] }, 'labels'],
  [{ labels: { line: 4 } }, 'labels["line"]'],
  [{ labels: { 'a b': '4' } }, 'labels'],
  [{ labels: { line: 'x'.repeat(1025) } }, 'labels["line"]'],
  [{ labels: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`l${i}`, ''])) }, 'labels'],
  [{ subject: undefined }, 'subject'],
  [{ subject: 'order' }, 'subject'],
  [{ predicate: 'Is' }, 'predicate'],
  [{ predicate: ['is'] }, 'predicate'],
  [{ object: undefined }, 'object'],
  [{ object: { a: 1 } }, 'object'],
  [{ object: 'no json \u0000' }, 'object'],
  [{ object: '{ "a": 1 }' }, 'object'],
  [{ object: `${'['.repeat(102)}${']'.repeat(102)}` }, 'object'],
  [{ reference: null }, 'reference'],
  [{ reference: { bucket: 'files', key: 'k' } }, 'reference'],
  [{ reference: { bucket: 'files', key: 'k', digest, size: -1 } }, 'reference.size'],
  [{ standsFor: 'm0' }, 'standsFor'],
  [{ standsFor: { epoch, offset: '1', messageId: 'm0' } }, 'standsFor.offset'],
  [{ standsFor: { epoch: '\ud800', offset: 1, messageId: 'm0' } }, 'standsFor.epoch'],
  [{ formerIds: 'm0' }, 'formerIds'],
  [{ formerIds: ['m0', '\u0000'] }, 'formerIds'],
];

describe('records of peers', () => {
  test('BND-8: what a node has written is taken, and what a later one may add', () => {
    for (const each of [record, whole, { ...record, priority: 1 }])
      expect(recordProblem(JSON.parse(JSON.stringify(each)))).toBeUndefined();
  });

  test('BND-8: a record that readers could not read is refused alone, and its reason can be kept', () => {
    for (const [change, field] of bad) {
      const text = JSON.stringify({ ...whole, ...change });
      const problem = recordProblem(JSON.parse(text));
      expect([change, problem]).toEqual([change, expect.stringContaining(field)]);
      expect(problem).not.toMatch(/\p{Cc}|\p{Cs}/u);
    }
  });

  test('BND-8: of a delivery the others are taken; a reason that was found before is kept', () => {
    const frontier = startFrontier(epoch);
    let { chain } = frontier;
    const texts = [record, { ...record, subject: undefined }, { ...record, producedAt: 1.5 }, record];
    const entries = texts.map((each, i) => {
      const key = `m${i + 1}`;
      const made = { ...each, messageId: key };
      const entry = {
        offset: i + 1,
        key,
        digest: made.subject === undefined ? digest.slice(7) : contentDigest(made as FactRecord),
        text: JSON.stringify(made),
      };
      chain = nextChain(chain, entry);
      return { ...entry, chain };
    });
    const refusal = { reason: 'too_large', message: 'too large' };
    const delivery = {
      epoch,
      chainBefore: frontier.chain,
      entries: entries.map((each, i) => (i === 2 ? { ...each, refusal } : each)),
    };
    const checked = checkDelivery(frontier, delivery, { from: 'plant-a', to: 'enterprise' });
    expect(checked.map((each) => each.refusal?.reason)).toEqual([
      undefined,
      'invalid_record',
      'too_large',
      undefined,
    ]);
  });
});
