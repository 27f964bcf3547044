import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { deriveKey } from '../../../../src/apps/passports/compile/hash.ts';
import {
  type AccessPoint,
  accessOfFact,
  batteryStatuses,
  bytesToHex,
  type Compiled,
  canonical,
  compile,
  type Fact,
  type FactType,
  factHash,
  hashJson,
  type Json,
  payloadHash,
  proofHash,
  type Rule,
  readerPoints,
  redactPayload,
  redactProof,
  sha256Hex,
  verify,
} from '../../../../src/apps/passports/compile/index.ts';
import { nodeHash } from '../../../../src/apps/passports/compile/proof.ts';
import {
  attributeFact,
  bytesOf,
  checked,
  inputWith,
  packageOf,
  rule,
  rulePackage,
  sampleFacts,
  snapshotOf,
} from './support.ts';

const text = (value: unknown): string => canonical(value as Json);

/** Everything that a reader of these points gets. */
function published(compiled: Compiled, points: readonly AccessPoint[]): string {
  return [
    text(compiled.receipt),
    text(redactPayload(compiled.payload, points)),
    text(redactProof(compiled.proof, points)),
  ].join('\n');
}

const everyHash = (artefacts: string): ReadonlySet<string> => new Set(artefacts.match(/[0-9a-f]{64}/g));

describe('BPC-12: a withheld yes or no cannot be found by trying both', () => {
  const sheetText = (answer: string): string =>
    `attribute,value,unit\nchemistry,LFP,\naccidents,${answer},\n`;
  const factsWith = (answer: string): readonly Fact[] => {
    const document = sha256Hex(bytesOf(sheetText(answer)));
    return [
      { ...attributeFact('chemistry', 'LFP'), sources: [{ document, row: 2, column: 'value' }] },
      { ...attributeFact('accidents', answer), sources: [{ document, row: 3, column: 'value' }] },
    ];
  };
  /** A withheld field, public fields that depend on it, and a public one beside it. */
  const rules: readonly Rule[] = [
    rule('accidents', 'sheet.accidents', 'string', { point: 4 }),
    rule('chemistry', 'sheet.chemistry', 'string'),
    rule('constant', 'sheet.accidents == "no" ? "same" : "same"', 'string'),
    rule('either', 'sheet.accidents == "no" || sheet.accidents == "yes"', 'bool'),
    rule('again', 'fields.accidents == "no" ? size([1, 2]) : size([3, 4])', 'int'),
    rule('counted', 'size([1, 2].filter(i, sheet.accidents == "no" || i > 0))', 'int'),
    rule('failed', 'div(Kg("1"), Kg(sheet.accidents == "no" ? "0" : "1"), 2) > Number("0") || true', 'bool'),
    rule('failing', '[1].exists(i, [0, 0][sheet.accidents == "no" ? 2 : 1] == 1 || true)', 'bool'),
    rule('missing', 'sheet.accidents == "no" ? sheet.assurances : sheet.operator', 'string', {
      onMissing: 'undetermined',
    }),
  ];
  const compiledWith = (answer: string, salt: string): Compiled =>
    compile(inputWith({ snapshot: snapshotOf(factsWith(answer)), salt }), checked(packageOf(...rules)));

  /** All hashes that somebody can compute who knows everything but the salt, for one candidate. */
  function guesses(compiled: Compiled, candidate: string): ReadonlySet<string> {
    const facts = factsWith(candidate);
    const result = { status: 'value', value: candidate };
    const open = compiled.payload.points[1].salt;
    const openNodes = redactProof(compiled.proof, [1]).nodes;
    const salts = [open, ...openNodes.map(({ data }) => String(data.salt)), '', compiled.receipt.inputs.salt];
    const children = [[], ...openNodes.map((node) => [nodeHash(node)])];
    const withSalts = salts.flatMap((salt) => {
      const fact = { fact_type: 'attribute', key: 'accidents', payload: { value: candidate }, salt };
      return [
        hashJson({ version: 'bpc-payload-part-1', point: 4, salt, fields: { accidents: result } }),
        hashJson({ label: 'snapshot', salt, value: snapshotOf(facts).hash }),
        hashJson({ document: facts[0]?.sources[0]?.document ?? '', points: [1, 4], salt }),
        ...children.map((hashes) =>
          hashJson({ id: 'attribute:accidents', type: 'fact', data: fact, children_hashes: hashes }),
        ),
        ...children.map((hashes) =>
          hashJson({
            id: 'accidents',
            type: 'field',
            data: {
              field: 'accidents',
              point: 4,
              expression: 'sheet.accidents',
              article: 'Annex XIII',
              result,
              salt,
            },
            children_hashes: hashes,
          }),
        ),
        ...children.map((hashes) =>
          hashJson({
            id: 'either@0:22',
            type: 'expr',
            data: { op: '==', value: candidate === 'no', salt },
            children_hashes: hashes,
          }),
        ),
      ];
    });
    return new Set([
      ...withSalts,
      sha256Hex(bytesOf(sheetText(candidate))),
      snapshotOf(facts).hash,
      ...facts.filter(({ key }) => key === 'accidents').map(factHash),
    ]);
  }

  test.each(['yes', 'no'])(
    'BPC-12: nothing that goes out is the hash of a guess (the answer is %s)',
    (answer) => {
      const compiled = compiledWith(answer, '5a'.repeat(32));
      const seen = everyHash(published(compiled, [1]));
      expect(seen.size).toBeGreaterThan(20);
      for (const candidate of ['yes', 'no'])
        expect([...guesses(compiled, candidate)].filter((guess) => seen.has(guess))).toEqual([]);
    },
  );

  test('BPC-12: nor is the battery’s status found by building its nodes with every salt that one can know', () => {
    const compiled = compile(
      inputWith(),
      checked(packageOf(rule('status', 'item.status', 'string', { point: 4 }))),
    );
    const seen = everyHash(published(compiled, [1]));
    const known = [compiled.payload.points[1].salt, compiled.receipt.inputs.salt, compiled.receiptHash, ''];
    /** As the compiler salts a node, with a key that is no secret; and without salt. */
    const salted = (node: { data: object }, key: string): { data: object }[] => [
      { ...node, data: { ...node.data, salt: '' } },
      {
        ...node,
        data: {
          ...node.data,
          salt: sha256Hex(Buffer.concat([Buffer.from(key, 'hex'), bytesOf(text(node))])).slice(0, 32),
        },
      },
    ];
    const chain = (status: string, key: string): readonly string[] => {
      const data = { path: 'item.status', value: status };
      const leaves = salted({ id: 'item.status', type: 'input', data, children_hashes: [] } as never, key);
      return leaves.flatMap((leaf) => {
        const result = { status: 'value', value: status };
        const field = { field: 'status', point: 4, expression: 'item.status', article: 'Annex XIII', result };
        const node = { id: 'status', type: 'field', data: field, children_hashes: [hashJson(leaf as never)] };
        return salted(node, key).map((each) => hashJson(each as never));
      });
    };
    const tried = (keys: readonly string[]) =>
      batteryStatuses.flatMap((status) => keys.flatMap((key) => chain(status, key)));
    expect(tried(known).filter((guess) => seen.has(guess))).toEqual([]);
    // With the secret key it is found: the attempt builds nodes as the compiler does.
    const secret = bytesToHex(deriveKey(Buffer.from('5a'.repeat(32), 'hex'), 'proof'));
    expect(tried([secret]).filter((guess) => seen.has(guess))).toHaveLength(1);
  });

  test('BPC-12: the attack works on those who know the salt, so it could be seen', () => {
    const compiled = compiledWith('yes', '5a'.repeat(32));
    expect(compiledWith('yes', '5a'.repeat(32)).receiptHash).toBe(compiled.receiptHash);
    expect(compiledWith('no', '5a'.repeat(32)).receiptHash).not.toBe(compiled.receiptHash);
    const seen = everyHash(published(compiled, [1, 2, 3, 4]));
    expect(seen).toContain(sha256Hex(bytesOf(sheetText('yes'))));
  });

  test('BPC-12: what goes out has the same form for both answers, but for hashes and salts', () => {
    const blank = (value: unknown): string =>
      text(value).replaceAll(/[0-9a-f]{64}|(?<="salt":")[0-9a-f]{32}/g, '#');
    const form = (compiled: Compiled) => {
      const { fields, nodes, documents } = redactProof(compiled.proof, [1]);
      return {
        receipt: blank(compiled.receipt),
        payload: blank(redactPayload(compiled.payload, [1])),
        proof: [blank(fields), nodes.map(blank).sort(), documents.map(blank)],
      };
    };
    const [yes, no] = [compiledWith('yes', '5a'.repeat(32)), compiledWith('no', '5a'.repeat(32))];
    expect(form(yes)).toEqual(form(no));
  });

  test('BPC-12: a document with withheld rows goes out by reference only', () => {
    const compiled = compiledWith('yes', '5a'.repeat(32));
    expect(redactProof(compiled.proof, [1]).documents).toEqual([]);
    expect(redactProof(compiled.proof, [1, 2, 4]).documents).toHaveLength(1);
  });

  test('BPC-12: one node, one salt: no two nodes share one', () => {
    const { proof } = compile(inputWith(), checked(rulePackage));
    const salts = proof.nodes.map(({ data }) => data.salt);
    expect(new Set(salts).size).toBe(proof.nodes.length);
    const again = compile(inputWith({ salt: '5b'.repeat(32) }), checked(rulePackage));
    expect(again.proof.nodes.filter(({ data }) => salts.includes(data.salt as string))).toEqual([]);
  });
});

describe('BPC-12: readers get what their access points allow', () => {
  const compiled = compile(inputWith(), checked(rulePackage));
  const pointOf = new Map(rulePackage.rules.map(({ field, point }) => [field, point]));

  test.each(Object.entries(readerPoints))('BPC-12: %s sees points %j and nothing else', (_, points) => {
    const payload = redactPayload(compiled.payload, points);
    const proof = redactProof(compiled.proof, points);
    for (const point of [1, 2, 3, 4] as const) {
      const part = payload.points[point];
      expect('hash' in part).toBe(!points.includes(point));
    }
    for (const { type, data } of proof.nodes) {
      if (type === 'field') expect(points).toContain(pointOf.get(String(data.field)));
      if (type === 'fact' || type === 'absent')
        expect(points).toContain(accessOfFact(data.fact_type as FactType, String(data.key)));
      if (data.path === 'item.status') expect(points).toContain(4);
    }
    // Each of their fields is there, with its node.
    const fields = [...pointOf].filter(([, point]) => points.includes(point)).map(([field]) => field);
    expect(
      proof.nodes
        .filter(({ type }) => type === 'field')
        .map(({ data }) => data.field)
        .sort(),
    ).toEqual(fields.sort());
  });

  test('BPC-12: a lattice: neither privileged reader sees all that the other sees', () => {
    const sees = (points: readonly AccessPoint[]) => published(compiled, points);
    const [report, status] = ['reports/pack-100-2026.pdf', '"item.status"'];
    expect(sees(readerPoints.authority)).toContain(report);
    expect(sees(readerPoints.authority)).not.toContain(status);
    expect(sees(readerPoints.legitimate_interest)).toContain(status);
    expect(sees(readerPoints.legitimate_interest)).not.toContain(report);
    expect(sees(readerPoints.public)).not.toMatch(/reports\/pack-100|item\.status|dismantling\.pdf/);
  });

  test('BPC-12: a public field computed from facts that are not public shows its value, and no way to it', () => {
    const proof = redactProof(compiled.proof, [1]);
    const mass = proof.nodes.find(({ type, id }) => type === 'field' && id === 'mass');
    expect(mass?.data.result).toMatchObject({ value: { value: 5800, scale: 1, unit: 'kg' } });
    const shown = new Set(proof.nodes.map(nodeHash));
    expect(mass?.children_hashes.filter((hash) => shown.has(hash))).toEqual([]);
    expect(text(proof)).not.toContain('electrolyte/');
  });

  test('BPC-12: every subset of points: hashes stay, the rest verifies, and redacting again only takes away', () => {
    const subset = fc.subarray([1, 2, 3, 4] as const);
    fc.assert(
      fc.property(subset, subset, (points, fewer) => {
        const payload = redactPayload(compiled.payload, points);
        const proof = redactProof(compiled.proof, points);
        expect(payloadHash(payload)).toBe(compiled.payloadHash);
        expect(proofHash(proof)).toBe(compiled.proofHash);
        const { ok, mismatches } = verify({
          receipt: text(compiled.receipt),
          payload: text(payload),
          proof: text(proof),
        });
        expect({ ok, mismatches }).toEqual({ ok: true, mismatches: [] });
        const both = fewer.filter((point) => points.includes(point));
        expect(text(redactProof(proof, both))).toBe(text(redactProof(compiled.proof, both)));
        expect(text(redactPayload(payload, both))).toBe(text(redactPayload(compiled.payload, both)));
      }),
      { numRuns: 30 },
    );
  });

  test('BPC-12: the error text of a compile names facts and rules, never values', () => {
    const facts = sampleFacts().map((fact) =>
      fact.key === 'annualCycles'
        ? { ...fact, payload: { value: { value: 0, scale: 0, unit: 'cycle/a' } } }
        : fact,
    );
    const act = () => compile(inputWith({ snapshot: snapshotOf(facts) }), checked(rulePackage));
    expect(act).toThrow(/^rule footprintPerFunctionalUnit, line 1, column 1: the divisor is 0$/);
  });
});
