import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { compareEntries, type Proof } from '../../../../src/apps/boundary/domain/compare.ts';
import { chainOver, firstChain } from '../../../../src/engine/log/entry.ts';

const start = firstChain('0190d2c4-0000-7000-8000-000000000000');

const proof = (offset: number, content = `content ${offset}`): Proof => ({
  offset,
  key: `m${offset}`,
  digest: hash('sha256', content),
  textHash: hash('sha256', `text of ${content}`),
  chain: '',
});
const proofs = (count: number): Proof[] => Array.from({ length: count }, (_, i) => proof(i + 1));

/** Chain hashes as they were signed, at these offsets. */
function anchorsOf(entries: readonly Proof[], offsets: readonly number[]) {
  const chains = new Map<number, string>();
  for (const each of entries) chains.set(each.offset, chainOver(chains.get(each.offset - 1) ?? start, each));
  return [
    { offset: 0, chain: start },
    ...offsets.map((offset) => ({ offset, chain: chains.get(offset) ?? '' })),
  ];
}

const anchors = anchorsOf(proofs(30), [10, 20, 30]);

async function* stream(entries: readonly Proof[]): AsyncGenerator<Proof> {
  yield* entries;
}

const compare = (source: readonly Proof[], receiver: readonly Proof[], signed = anchors) =>
  compareEntries({ source: stream(source), receiver: stream(receiver), anchors: signed });

const changed = (offset: number, to: Partial<Proof> = proof(offset, 'changed')): Proof[] =>
  proofs(30).map((each) => (each.offset === offset ? { ...each, ...to, offset } : each));

const named = ({ tampered }: Awaited<ReturnType<typeof compare>>) =>
  tampered.map(({ side, offset, messageId }) => `${side} ${offset} ${messageId}`.trim());

describe('compareEntries', () => {
  test('BND-10: equal logs are equal, also while facts wait to cross', async () => {
    expect(await compare(proofs(30), proofs(30))).toEqual({ tampered: [], equal: 30, gaps: 0, replaced: 0 });
    expect(await compare(proofs(37), proofs(30))).toEqual({ tampered: [], equal: 30, gaps: 0, replaced: 0 });
    expect(await compare([], [])).toEqual({ tampered: [], equal: 0, gaps: 0, replaced: 0 });
  });

  test('BND-10: the side that was changed is named, also if it has computed its chain hashes anew', async () => {
    expect(named(await compare(changed(14), proofs(30)))).toEqual(['source 14 m14']);
    expect(named(await compare(proofs(30), changed(14)))).toEqual(['receiver 14 m14']);
    expect(named(await compare(changed(3), changed(27)))).toEqual(['source 3 m3', 'receiver 27 m27']);
    // The same change on both sides: the receipt tells, though the two agree.
    expect(named(await compare(changed(14), changed(14)))).toEqual(['source 20', 'receiver 20']);
  });

  test('BND-10: what a side has found itself is named once', async () => {
    const damage = 'its chain hash does not follow';
    const receiver = changed(14, { ...proof(14, 'changed'), damage });
    const { tampered } = await compare(proofs(30), receiver);
    expect(tampered).toEqual([{ side: 'receiver', offset: 14, messageId: 'm14', what: damage }]);
    // Not crossed yet.
    const source = [...proofs(30), { ...proof(31), damage }];
    expect(named(await compare(source, proofs(30)))).toEqual(['source 31 m31']);
  });

  test('BND-8: gap records are no differences; what is in quarantine is compared', async () => {
    const known = changed(5, { ...proof(5), gap: 'too_large' });
    expect(await compare(proofs(30), known)).toEqual({ tampered: [], equal: 30, gaps: 1, replaced: 0 });
    const unknown = changed(5, { key: '', digest: '', textHash: '', gap: 'already_delivered' });
    expect(await compare(proofs(30), unknown)).toEqual({ tampered: [], equal: 29, gaps: 1, replaced: 0 });
    expect(named(await compare(changed(5), known))).toEqual(['source 5 m5']);
    expect(
      named(await compare(proofs(30), changed(5, { ...proof(5, 'changed'), gap: 'too_large' }))),
    ).toEqual(['receiver 5 m5']);
  });

  test('BND-10: what was trimmed on one side or both is left out', async () => {
    const { equal, tampered } = await compare(proofs(30).slice(12), proofs(30));
    expect([equal, tampered]).toEqual([18, []]);
    expect(await compare(proofs(30).slice(12), proofs(30).slice(15))).toMatchObject({
      tampered: [],
      equal: 15,
    });
    expect(named(await compare(proofs(30).slice(12), changed(25).slice(15)))).toEqual(['receiver 25 m25']);
    expect(named(await compare(changed(17).slice(12), proofs(30)))).toEqual(['source 17 m17']);
    // Its range was trimmed in part on both sides: which of them was changed cannot be told.
    expect(named(await compare(proofs(30).slice(12), changed(17).slice(15)))).toEqual([
      'source 17 m17',
      'receiver 17 m17',
    ]);
  });
});
