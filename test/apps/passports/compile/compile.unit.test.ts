import { createHash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  type Compiled,
  canonical,
  compile,
  compileLimits,
  type Fact,
  hashJson,
  type Json,
  type ProofNode,
  parseDocument,
  type Source,
  sha256Hex,
} from '../../../../src/apps/passports/compile/index.ts';
import { nodeHash } from '../../../../src/apps/passports/compile/proof.ts';
import { documents } from '../../../../src/apps/passports/compile/sample/index.ts';
import {
  attributeFact,
  checked,
  document,
  inputWith,
  items,
  packageOf,
  rule,
  rulePackage,
  sampleFacts,
  snapshotOf,
  textOf,
} from './support.ts';

const sampleRules = checked(rulePackage);

const childrenOf = (compiled: Compiled, node: ProofNode): readonly ProofNode[] => {
  const byHash = new Map(compiled.proof.nodes.map((each) => [nodeHash(each), each]));
  return node.children_hashes.map((hash) => byHash.get(hash) as ProofNode);
};
const fieldNode = (compiled: Compiled, field: string): ProofNode =>
  compiled.proof.nodes.find((node) => node.type === 'field' && node.id === field) as ProofNode;

function* subtree(compiled: Compiled, node: ProofNode): Generator<ProofNode> {
  yield node;
  for (const child of childrenOf(compiled, node)) yield* subtree(compiled, child);
}

describe('BPC-8: compile is pure', () => {
  afterEach(() => {
    vi.restoreAllMocks();
    vi.unstubAllGlobals();
  });

  test('BPC-8: the same input gives the same bytes', () => {
    const [first, second] = [compile(inputWith(), sampleRules), compile(inputWith(), checked(rulePackage))];
    for (const name of ['payload', 'proof', 'receipt'] as const)
      expect(Buffer.compare(first.bytes[name], second.bytes[name])).toBe(0);
  });

  test('BPC-8: the order in which facts and sources are stored does not matter', () => {
    const { snapshot } = inputWith();
    const two = (fact: Fact): Fact => ({
      ...fact,
      sources: [...fact.sources, { document, row: 9, column: 'value' }],
    });
    const facts = snapshot.facts.map(two);
    const backwards = [...facts].reverse().map((fact) => ({ ...fact, sources: [...fact.sources].reverse() }));
    const [first, second] = [facts, backwards].map((each) =>
      compile(inputWith({ snapshot: { ...snapshot, facts: each } }), sampleRules),
    );
    expect(first && textOf(first.bytes.proof)).toBe(second && textOf(second.bytes.proof));
    expect(first?.receiptHash).toBe(second?.receiptHash);
  });

  test('BPC-8: no clock, no random numbers, no locale, no time zone', () => {
    const before = compile(inputWith(), sampleRules);
    const refuse = (what: string) => (): never => {
      throw new Error(`the compiler used ${what}`);
    };
    vi.spyOn(Math, 'random').mockImplementation(refuse('random numbers'));
    vi.spyOn(Date, 'now').mockImplementation(refuse('the clock'));
    vi.spyOn(globalThis.crypto, 'getRandomValues').mockImplementation(refuse('random numbers'));
    vi.spyOn(String.prototype, 'localeCompare').mockImplementation(refuse('the locale'));
    vi.stubGlobal(
      'Date',
      class {
        constructor() {
          refuse('the clock')();
        }
      },
    );
    vi.stubGlobal('Intl', new Proxy({}, { get: refuse('the locale') }));
    expect(compile(inputWith(), sampleRules).receiptHash).toBe(before.receiptHash);
  });

  test('BPC-8: a small passport has the hashes that it had when this was written', () => {
    const rules = checked(packageOf(rule('chemistry', 'sheet.chemistry', 'string')));
    const input = inputWith({ snapshot: snapshotOf([attributeFact('chemistry', 'LFP')]) });
    const { payloadHash, proofHash, receiptHash } = compile(input, rules);
    expect({ payloadHash, proofHash, receiptHash }).toMatchInlineSnapshot(`
      {
        "payloadHash": "15ebe696b671b8e34c57deba59d7be70ddef2f7d71f3a48d8c84f623190344fb",
        "proofHash": "d81ba4eca69936aedc3431536799d8cdb4143fa3c435b41655b324e7cd391c43",
        "receiptHash": "14f97b2dcba8062a419f0c2424d25419d1ebf6880726d8b003524d7da618f6c0",
      }
    `);
  });

  test('BPC-8: every input changes the receipt', () => {
    const { receiptHash } = compile(inputWith(), sampleRules);
    const base = inputWith();
    const changed = [
      inputWith({ issuedAt: '2027-03-01T00:00:01Z' }),
      inputWith({ build: 'other' }),
      inputWith({ signingKey: 'other' }),
      inputWith({ salt: '5b'.repeat(32) }),
      inputWith({ item: items[1] ?? null }),
      inputWith({ item: null }),
      inputWith({ product: { ...base.product, name: 'Other' } }),
      inputWith({ passport: { ...base.passport, version: base.passport.id } }),
      inputWith({ snapshot: snapshotOf(sampleFacts().filter(({ key }) => key !== 'risk/nickel')) }),
    ].map((input) => compile(input, sampleRules).receiptHash);
    const otherRules = checked({ ...rulePackage, version: '1.0.1' });
    const all = [receiptHash, ...changed, compile(inputWith(), otherRules).receiptHash];
    expect(new Set(all).size).toBe(all.length);
  });

  test('BPC-8: the library imports nothing of Node, and nothing of ours that is not in its folder', () => {
    const root = join(import.meta.dirname, '../../../../src/apps/passports/compile');
    const files = globSync('**/*.ts', { cwd: root });
    expect(files.length).toBeGreaterThan(30);
    const wrong = files.flatMap((file) => {
      const text = readFileSync(join(root, file), 'utf8');
      const imports = [...text.matchAll(/from '([^']+)'/g)].map(([, from = '']) => from);
      const depth = file.split('/').length - 1;
      return imports
        .filter((from) => from.startsWith('node:') || from.startsWith('../'.repeat(depth + 1)))
        .concat(/\b(?:Buffer|process)\b\./.test(text) ? ['a global of Node'] : [])
        .map((from) => `${file}: ${from}`);
    });
    expect(wrong).toEqual([]);
  });
});

describe('BPC-8: the proof', () => {
  const compiled = compile(inputWith(), sampleRules);

  test('BPC-8: a node’s hash is the SHA-256 of its canonical id, type, data and children', () => {
    const node = fieldNode(compiled, 'mass');
    const { id, type, data, children_hashes } = node;
    const text = canonical({ id, type, data, children_hashes } as unknown as Json);
    expect(compiled.proof.fields.mass).toBe(createHash('sha256').update(text).digest('hex'));
    expect(Object.keys(node).sort()).toEqual(['children_hashes', 'data', 'id', 'type']);
  });

  test('BPC-8: each node is there once, and reached from a field', () => {
    const hashes = compiled.proof.nodes.map(nodeHash);
    expect(new Set(hashes).size).toBe(hashes.length);
    expect(hashes).toEqual([...hashes].sort());
    const reached = Object.keys(compiled.proof.fields).flatMap((field) => [
      ...subtree(compiled, fieldNode(compiled, field)),
    ]);
    expect(new Set(reached.map(nodeHash))).toEqual(new Set(hashes));
    // 18 materials are read by four rules.
    expect(
      compiled.proof.nodes.filter(({ type, id }) => type === 'fact' && id.startsWith('material:')),
    ).toHaveLength(18);
  });

  test('BPC-8: leads from the field by each element of a comprehension to the document and row', () => {
    const nodes = [...subtree(compiled, fieldNode(compiled, 'mass'))];
    const elements = nodes.filter(({ id, data }) => id.startsWith('mass@') && data.op === '.');
    expect(elements).toHaveLength(18);
    const [first] = elements.map((node) => ({ node, from: childrenOf(compiled, node)[0] }));
    const material = sampleFacts().find(
      ({ type, key }) => type === 'material' && `material:${key}` === first?.from?.id,
    );
    expect(first?.node.data.value).toEqual(material?.payload.mass);
    const [source] = (first?.from?.data.sources ?? []) as unknown as readonly Source[];
    const opening = compiled.proof.documents.find(({ reference }) => reference === source?.document);
    const text =
      documents.find(({ name }) => name === 'bill-of-materials.csv')?.input.bytes ?? new Uint8Array();
    expect(opening?.document).toBe(sha256Hex(text));
    expect(textOf(text).split('\n')[(source?.row ?? 0) - 1]).toContain(material?.payload.name as string);
    expect(source?.column).toBe('mass');
  });

  test('BPC-7: a division keeps numerator and denominator', () => {
    const [division] = childrenOf(compiled, fieldNode(compiled, 'footprintPerFunctionalUnit'));
    expect(division?.data).toMatchObject({
      op: 'div',
      numerator: 7_300_000_000,
      denominator: 45_600,
      value: { value: 160088, scale: 6, unit: 'kgCO2e/kWh' },
    });
  });

  test('BPC-8: a missing fact is in the derivation of what is undetermined', () => {
    const [child] = childrenOf(compiled, fieldNode(compiled, 'temperature'));
    expect(child).toMatchObject({ type: 'absent', data: { fact_type: 'attribute', key: 'temperature' } });
  });

  test('BPC-3: a fact that two documents give names both', () => {
    const other = 'e'.repeat(64);
    const twice = {
      ...attributeFact('chemistry', 'LFP'),
      sources: [
        { document, row: 2, column: 'value' },
        { document: other, row: 5, column: 'value' },
      ],
    };
    const rules = checked(packageOf(rule('chemistry', 'sheet.chemistry', 'string')));
    const { proof } = compile(inputWith({ snapshot: snapshotOf([twice]) }), rules);
    expect(proof.documents.map((each) => each.document).sort()).toEqual([document, other]);
    expect(proof.nodes.find(({ type }) => type === 'fact')?.data.sources).toMatchObject([
      { row: 2 },
      { row: 5 },
    ]);
  });
});

describe('BPC-8: the receipt binds inputs and outputs', () => {
  test('BPC-8: hashes of payload, points, proof and rules are those of the artefacts', () => {
    const { receipt, payload, proof, bytes, receiptHash } = compile(inputWith(), sampleRules);
    expect(receipt.outputs.proof).toBe(hashJson({ version: proof.version, fields: proof.fields }));
    expect(receipt.outputs.payload).toBe(
      hashJson({ version: payload.version, points: receipt.outputs.points }),
    );
    expect(receipt.inputs.rules.hash).toBe(hashJson(rulePackage as unknown as Json));
    expect(receiptHash).toBe(createHash('sha256').update(bytes.receipt).digest('hex'));
  });

  test('BPC-11: an item that links to its model has only its own fields, and names the model’s receipt', () => {
    const model = compile(inputWith({ item: null }), sampleRules);
    const link = { version: inputWith().passport.version, receipt_hash: model.receiptHash };
    const item = compile(inputWith({ model: link }), sampleRules);
    expect(item.receipt.model).toEqual(link);
    expect(Object.keys(item.payload.points[1].fields).sort()).toEqual([
      'batteryId',
      'extinguishingAgent',
      'manufacturingDate',
      'manufacturingPlace',
      'passportId',
    ]);
    expect(item.payload.points[2].fields).toEqual({});
    expect(Object.keys(item.proof.fields)).not.toContain('mass');
  });
});

describe('BPC-8: limits', () => {
  test.each([
    ['PAYLOAD_TOO_LARGE', { payloadBytes: 1000 }],
    ['PROOF_TOO_LARGE', { proofBytes: 1000 }],
    ['RECEIPT_TOO_LARGE', { receiptBytes: 100 }],
  ])('BPC-8: %s', (code, limit) => {
    const act = () => compile(inputWith(), sampleRules, { ...compileLimits, ...limit });
    expect(act).toThrow(expect.objectContaining({ code }));
    expect(act).toThrow(/has \d+ bytes; \d+ are allowed/);
  });

  test('BPC-8: a proof that is far too large is given up while it is built', () => {
    const loops =
      'size(materials.map(a, materials.map(b, materials.map(c, materials.exists(d, d.name == c.name && false)))))';
    const rules = checked(packageOf(rule('a', `${loops} > 0 || true`, 'bool')));
    expect(() => compile(inputWith(), rules)).toThrow(/^the proof would be far larger than the 262144 bytes/);
  });

  test('BPC-8: the sample fits the limits', () => {
    const { bytes } = compile(inputWith(), sampleRules);
    expect(bytes.payload.length).toBeLessThan(compileLimits.payloadBytes);
    expect(bytes.proof.length).toBeLessThan(compileLimits.proofBytes);
    expect(bytes.receipt.length).toBeLessThan(compileLimits.receiptBytes);
  });

  test.each([
    ['a salt that is too short', { salt: 'ab' }, 'salt must have 32 bytes'],
    ['a salt in capitals', { salt: 'AB'.repeat(32) }, 'salt must have 32 bytes'],
    ['a local time', { issuedAt: '2027-03-01T00:00:00+01:00' }, 'issuedAt'],
    ['a day that does not exist', { issuedAt: '2027-02-29T00:00:00Z' }, 'issuedAt'],
    ['an id that is no UUID', { passport: { id: '1', version: '2' } }, 'no UUID'],
    [
      'a GTIN with a wrong check digit',
      { product: { ...inputWith().product, gtin: '09506000134353' } },
      'GTIN',
    ],
    ['a serial number with a blank', { item: { ...inputWith().item, serial: 'A 1' } }, 'serial number'],
    [
      'a snapshot whose hash is another',
      { snapshot: { ...inputWith().snapshot, hash: 'f'.repeat(64) } },
      'its facts give',
    ],
  ])('%s is refused', (_, change, sentence) => {
    const act = () => compile({ ...inputWith(), ...change } as ReturnType<typeof inputWith>, sampleRules);
    expect(act).toThrow(expect.objectContaining({ code: 'VALIDATION_ERROR' }));
    expect(act).toThrow(sentence);
  });

  test('BPC-8: work grows with the number of facts, not faster: ten times the facts, ten times the nodes', () => {
    const header = 'component,material,cas,mass,unit,critical,hazardous\n';
    const nodesWith = (count: number): number => {
      const rows = Array.from({ length: count }, (_, at) => `other,material ${at},,0.5,kg,copper,no`);
      const parsed = parseDocument({
        kind: 'bill_of_materials',
        format: 'csv',
        bytes: new TextEncoder().encode(header + rows.join('\n')),
      });
      if (!parsed.ok) throw new Error(parsed.problems[0]?.message);
      const facts = [...sampleFacts().filter(({ type }) => type !== 'material'), ...parsed.facts];
      const limits = { payloadBytes: 1e9, proofBytes: 1e9, receiptBytes: 1e9 };
      return compile(inputWith({ snapshot: snapshotOf(facts) }), sampleRules, limits).proof.nodes.length;
    };
    const [none, once, tenfold] = [nodesWith(1), nodesWith(101), nodesWith(1001)];
    expect((tenfold - none) / (once - none)).toBeCloseTo(10, 5);
  });
});
