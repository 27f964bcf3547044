import { generateKeyPairSync, sign } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  canonical,
  compile,
  formatQr,
  hexToBytes,
  type Json,
  parseQr,
  redactPayload,
  redactProof,
  type Verified,
  type VerifyInput,
  type VerifyPart,
  verify,
} from '../../../../src/apps/passports/compile/index.ts';
import { bytesOf, checked, inputWith, items, rulePackage, textOf } from './support.ts';

const rules = checked(rulePackage);
const compiled = compile(inputWith(), rules);
const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const rawKey = (key: typeof publicKey): Uint8Array =>
  Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url');
const text = (value: unknown): string => canonical(value as Json);
const signed = (hash: string): Uint8Array => sign(null, hexToBytes(hash) ?? new Uint8Array(), privateKey);

/** What somebody gets who scans the code and asks for what is public. */
const bundle = {
  qr: formatQr({
    passportVersion: compiled.receipt.passport_version,
    payloadHash: compiled.payloadHash,
    proofHash: compiled.proofHash,
    receiptHash: compiled.receiptHash,
  }),
  receipt: text(compiled.receipt),
  signature: signed(compiled.receiptHash),
  publicKeys: { 'key-1': rawKey(publicKey) },
  payload: text(redactPayload(compiled.payload, [1])),
  proof: text(redactProof(compiled.proof, [1])),
  rules: text(rulePackage),
} satisfies VerifyInput;

const parts = ({ mismatches }: Verified): readonly VerifyPart[] => mismatches.map(({ part }) => part);

const flipped = (bytes: Uint8Array, bit: number): Uint8Array =>
  bytes.map((byte, at) => (at === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte));
const flippedText = (source: string, bit: number): string => textOf(flipped(bytesOf(source), bit));

describe('BPC-15: offline verification', () => {
  test('BPC-15: the public part fits receipt, signature, code and rules, without the salts of the others', () => {
    const result = verify(bundle);
    expect(result.mismatches).toEqual([]);
    expect(result.ok).toBe(true);
    expect(result.checked).toContain('signature, over the receipt');
    expect(result.checked).toContain('payload /points/1, against the receipt');
    expect(result.checked.some((what) => /^\d\d fields, computed again from their facts$/.test(what))).toBe(
      true,
    );
    expect(result.fields.ratedCapacity).toEqual({
      status: 'value',
      value: { value: 151, scale: 0, unit: 'Ah' },
    });
    expect(result.fields.status).toBeUndefined();
  });

  test.each([
    ['the code alone', { qr: bundle.qr }],
    [
      'receipt, signature and key',
      { receipt: bundle.receipt, signature: bundle.signature, publicKeys: bundle.publicKeys },
    ],
    ['payload and receipt', { receipt: bundle.receipt, payload: bundle.payload }],
    ['payload and code', { qr: bundle.qr, payload: bundle.payload }],
    ['proof and code', { qr: bundle.qr, proof: bundle.proof }],
  ])('BPC-15: %s can be checked', (_, input) => {
    expect(verify(input)).toMatchObject({ ok: true, mismatches: [] });
  });

  test('BPC-15: a flipped bit anywhere in the code is found and named', () => {
    const { proof: _, rules: __, payload: ___, ...small } = bundle;
    for (let bit = 0; bit < 8 * bundle.qr.length; bit++)
      expect(verify({ receipt: small.receipt, qr: flippedText(bundle.qr, bit) }).ok, `bit ${bit}`).toBe(
        false,
      );
    // With a signature that fits the receipt it is certain which of the two was changed.
    for (let bit = 0; bit < 8 * bundle.qr.length; bit += 7) {
      const named = parts(verify({ ...small, qr: flippedText(bundle.qr, bit) }));
      expect(named.length > 0 && named.every((part) => part === 'qr'), `bit ${bit}: ${named.join()}`).toBe(
        true,
      );
    }
  });

  test('BPC-15: a flipped bit anywhere in the signature or in the key is found and named', () => {
    const { proof: _, rules: __, payload: ___, ...small } = bundle;
    for (let bit = 0; bit < 512; bit += 7)
      expect(parts(verify({ ...small, signature: flipped(bundle.signature, bit) }))).toEqual(['signature']);
    for (let bit = 0; bit < 256; bit += 7)
      expect(parts(verify({ ...small, publicKeys: { 'key-1': flipped(rawKey(publicKey), bit) } }))).toEqual([
        'signature',
      ]);
  });

  test('BPC-15: a flipped bit anywhere in the receipt is found and named', () => {
    const { proof: _, rules: __, payload: ___, ...small } = bundle;
    fc.assert(
      fc.property(fc.nat(8 * bundle.receipt.length - 1), (bit) => {
        expect(parts(verify({ ...small, receipt: flippedText(bundle.receipt, bit) }))).toContain('receipt');
      }),
      { numRuns: 500 },
    );
  });

  test.each(['payload', 'proof', 'rules'] as const)(
    'BPC-15: a flipped bit anywhere in the %s is found and named',
    (part) => {
      const { qr, receipt } = bundle;
      fc.assert(
        fc.property(fc.nat(8 * bytesOf(bundle[part]).length - 1), (bit) => {
          expect(parts(verify({ qr, receipt, [part]: flippedText(bundle[part], bit) }))).toContain(part);
        }),
        { numRuns: part === 'payload' ? 400 : 150 },
      );
    },
  );

  test('BPC-15: the place of the change is said', () => {
    const changed = bundle.payload.replace('"value":151', '"value":152');
    expect(verify({ ...bundle, payload: changed }).mismatches).toEqual([
      expect.objectContaining({ part: 'payload', at: '/points/1' }),
      expect.objectContaining({ part: 'payload', at: '/points/1/fields/ratedCapacity' }),
    ]);
    const node = bundle.proof.replace(
      '"payload":{"value":{"scale":0,"unit":"Ah","value":151}}',
      '"payload":{"value":{"scale":0,"unit":"Ah","value":152}}',
    );
    expect(node).not.toBe(bundle.proof);
    expect(verify({ ...bundle, proof: node }).mismatches[0]?.message).toContain('"attribute:ratedCapacity"');
  });

  test('BPC-15: parts of another passport do not fit', () => {
    const other = compile(inputWith({ item: items[1] ?? null, salt: '77'.repeat(32) }), rules);
    expect(parts(verify({ ...bundle, payload: text(redactPayload(other.payload, [1])) }))).toContain(
      'payload',
    );
    expect(parts(verify({ ...bundle, proof: text(redactProof(other.proof, [1])) }))).toContain('proof');
    expect(parts(verify({ ...bundle, receipt: text(other.receipt) }))).toContain('receipt');
    expect(parts(verify({ ...bundle, signature: signed(other.receiptHash) }))).toEqual(['signature']);
    const salted = redactPayload(compiled.payload, [1]);
    const swapped = { ...salted, points: { ...salted.points, 1: salted.points[2], 2: salted.points[1] } };
    expect(parts(verify({ ...bundle, payload: text(swapped) }))).toContain('payload');
  });

  test('BPC-15: a value that the rules do not give is found even if everything is hashed and signed again', () => {
    const liar = checked({
      ...rulePackage,
      rules: rulePackage.rules.map((each) =>
        each.field === 'efficiencyFade' || each.field !== 'ratedEnergy'
          ? each
          : { ...each, expression: 'kWh(sheet.nominalVoltage * sheet.ratedCapacity) * 2' },
      ),
    });
    const lie = compile(inputWith(), liar);
    // The receipt claims the honest rules.
    const receipt = {
      ...lie.receipt,
      inputs: { ...lie.receipt.inputs, rules: compiled.receipt.inputs.rules },
    };
    const result = verify({
      receipt: text(receipt),
      proof: text(redactProof(lie.proof, [1])),
      rules: bundle.rules,
    });
    expect(result.mismatches).toMatchObject([{ part: 'proof', at: '/fields/ratedEnergy' }]);
  });

  test('BPC-15: an unknown key, a signature without receipt or key', () => {
    expect(parts(verify({ ...bundle, publicKeys: {} }))).toEqual(['key']);
    expect(parts(verify({ ...bundle, publicKeys: { 'key-2': rawKey(publicKey) } }))).toEqual(['key']);
    expect(parts(verify({ signature: bundle.signature }))).toEqual(['signature']);
    expect(parts(verify({ receipt: bundle.receipt, signature: bundle.signature }))).toEqual(['key']);
    expect(parts(verify({ ...bundle, signature: new Uint8Array(3) }))).toEqual(['signature']);
  });

  test('BPC-15: whatever is given, it answers and does not throw', () => {
    const { qr, receipt } = bundle;
    const junk = fc.oneof(
      fc.string(),
      fc.json(),
      fc.constantFrom(
        '{}',
        '[]',
        'null',
        '{"version":"bpc-proof-1"}',
        '{"__proto__":1}',
        bundle.proof.slice(0, 999),
      ),
    );
    fc.assert(
      fc.property(fc.constantFrom('qr', 'receipt', 'payload', 'proof', 'rules'), junk, (part, value) => {
        expect(verify({ qr, receipt, [part]: value }).ok).toBe(false);
      }),
      { numRuns: 200 },
    );
  });
});

describe('BPC-15: artefacts that were made up', () => {
  /** Replaces or removes one value anywhere in a proof. */
  function damaged(proof: string, choices: readonly number[], junk: Json | undefined): string {
    const copy = JSON.parse(proof) as Record<string, unknown>;
    let at: Record<string, unknown> = copy;
    for (const choice of choices) {
      const keys = Object.keys(at);
      const key = keys[choice % Math.max(keys.length, 1)];
      if (key === undefined) break;
      const next = at[key];
      if (typeof next === 'object' && next !== null && choice !== choices.at(-1)) {
        at = next as Record<string, unknown>;
        continue;
      }
      if (junk === undefined && !Array.isArray(at)) delete at[key];
      else at[key] = junk ?? null;
      break;
    }
    return text(copy);
  }

  test('BPC-15: rules with any value replaced or removed are answered, also without receipt', () => {
    const junk = fc.constantFrom<Json | undefined>(undefined, null, 1, '', [], {}, 'constructor');
    const few = text({
      ...rulePackage,
      rules: rulePackage.rules.slice(0, 9),
      testCases: rulePackage.testCases.slice(1, 2),
    });
    fc.assert(
      fc.property(fc.array(fc.nat(1000), { minLength: 1, maxLength: 6 }), junk, (choices, value) => {
        expect(() => verify({ proof: bundle.proof, rules: damaged(few, choices, value) })).not.toThrow();
      }),
      { numRuns: 150 },
    );
  });

  test('BPC-15: a proof with any value replaced or removed is answered, also without receipt and code', () => {
    const junk = fc.constantFrom<Json | undefined>(undefined, null, 1, '', [], {}, [null], { value: {} });
    fc.assert(
      fc.property(fc.array(fc.nat(1000), { minLength: 1, maxLength: 8 }), junk, (choices, value) => {
        const { payload, rules: published } = bundle;
        const proof = damaged(bundle.proof, choices, value);
        // Leaving out nodes and documents is what a redaction does: some damage of this kind is none.
        expect(() => verify({ payload, rules: published, proof })).not.toThrow();
      }),
      { numRuns: 150 },
    );
  });
});

describe('BPC-10: the text of the document code', () => {
  const hash = fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: 64, maxLength: 64 });

  test('BPC-10: has 212 characters in the given form, and is read back', () => {
    fc.assert(
      fc.property(fc.uuid(), hash, hash, hash, (passportVersion, payloadHash, proofHash, receiptHash) => {
        const content = { passportVersion, payloadHash, proofHash, receiptHash };
        const code = formatQr(content);
        expect(code).toHaveLength(212);
        expect(code).toMatch(/^BPC1\|pv=[0-9a-f-]{36}\|ph=[A-Z2-7]{52}\|pr=[A-Z2-7]{52}\|rh=[A-Z2-7]{52}$/);
        expect(parseQr(code)).toEqual(content);
      }),
    );
  });

  test('BPC-10: base 32 is that of RFC 4648', () => {
    // "foobar" is MZXW6YTBOI in RFC 4648, section 10.
    const foobar = Buffer.from('foobar').toString('hex').padEnd(64, '0');
    expect(
      formatQr({
        passportVersion: inputWith().passport.id,
        payloadHash: foobar,
        proofHash: foobar,
        receiptHash: foobar,
      }),
    ).toContain('|ph=MZXW6YTBOIAA');
  });

  test('BPC-10: bits that stand for nothing must be zero, and a hash must be one', () => {
    expect(parseQr(bundle.qr.replace(/.$/, (last) => (last === 'B' ? 'C' : 'B')))).toBeUndefined();
    expect(parseQr(bundle.qr.toLowerCase())).toBeUndefined();
    expect(parseQr(`${bundle.qr} `)).toBeUndefined();
    expect(() => formatQr({ passportVersion: 'x', payloadHash: '', proofHash: '', receiptHash: '' })).toThrow(
      'no UUID',
    );
  });
});
