import { describe, expect, test } from 'vitest';
import {
  buildSnapshot,
  type Fact,
  factHash,
  hashJson,
  type SnapshotDocument,
  snapshotHash,
} from '../../../../src/apps/passports/compile/index.ts';
import { attributeFact, sampleFacts } from './support.ts';

const [older, newer, newest] = ['a', 'b', 'c'].map((letter) => letter.repeat(64)) as [string, string, string];

const chemistry = (value: string, document: string, row = 2): Fact => ({
  ...attributeFact('chemistry', value),
  sources: [{ document, row, column: 'value' }],
});

const documents = (
  ...supersedes: readonly (readonly [string, string | null])[]
): readonly SnapshotDocument[] => supersedes.map(([hash, old]) => ({ hash, supersedes: old }));

describe('BPC-5: snapshots', () => {
  test('BPC-5: the hash is over a version tag and the sorted list of type, key and payload hash', () => {
    const facts = [attributeFact('chemistry', 'LFP'), attributeFact('accidents', 'none')];
    const { hash } = buildSnapshot(facts, []);
    expect(hash).toBe(
      hashJson([
        'bpc-snapshot-1',
        [
          ['attribute', 'accidents', hashJson({ value: 'none' })],
          ['attribute', 'chemistry', hashJson({ value: 'LFP' })],
        ],
      ]),
    );
    expect(snapshotHash(facts.map((fact) => ({ ...fact, payloadHash: factHash(fact) })))).toBe(hash);
  });

  test('BPC-5: the order in which facts come does not matter, each payload does', () => {
    const facts = sampleFacts();
    const { hash } = buildSnapshot(facts, []);
    expect(buildSnapshot([...facts].reverse(), []).hash).toBe(hash);
    for (const at of facts.keys()) {
      const changed = facts.map((fact, index) =>
        index === at ? { ...fact, payload: { value: 'x' } } : fact,
      );
      expect(buildSnapshot(changed, []).hash).not.toBe(hash);
    }
  });

  test('BPC-5: two payloads for one type and key are DUPLICATE_FACT, which names both sources', () => {
    const facts = [chemistry('LFP', older, 7), chemistry('NMC', newer, 9)];
    const act = () => buildSnapshot(facts, documents([older, null], [newer, null]));
    expect(act).toThrow(expect.objectContaining({ code: 'DUPLICATE_FACT' }));
    expect(act).toThrow(`document ${older}, row 7, column "value"`);
    expect(act).toThrow(`document ${newer}, row 9, column "value"`);
  });

  test('BPC-5: what the newer document supersedes is gone, directly and by way of another', () => {
    const facts = [chemistry('LFP', older), chemistry('NMC', newer), chemistry('LMO', newest)];
    const built = buildSnapshot(facts, documents([older, null], [newer, older], [newest, newer]));
    expect(built.facts).toEqual([chemistry('LMO', newest)]);
  });

  test('BPC-5: what the newer document no longer says is gone, too', () => {
    const facts = [chemistry('LFP', older), attributeFact('accidents', 'none')];
    const built = buildSnapshot(facts, documents([older, null], [newer, older]));
    expect(built.facts.map(({ key }) => key)).toEqual(['accidents']);
  });

  test('BPC-3: a fact that two documents give keeps the source that is not superseded', () => {
    const facts = [chemistry('LFP', older), chemistry('LFP', newest)];
    const built = buildSnapshot(facts, documents([older, null], [newer, older], [newest, null]));
    expect(built.facts).toEqual([chemistry('LFP', newest)]);
  });

  test('BPC-5: documents that supersede each other in a circle are refused', () => {
    const act = () => buildSnapshot([], documents([older, newer], [newer, older]));
    expect(act).toThrow(expect.objectContaining({ code: 'VALIDATION_ERROR' }));
  });
});
