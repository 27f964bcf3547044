import { createPrivateKey, createPublicKey, sign } from 'node:crypto';
import {
  type Compiled,
  type CompileInput,
  canonical,
  compile,
  hexToBytes,
  type Item,
  type JsonObject,
  type Reader,
  type RulePackage,
  sha256,
  sha256Hex,
} from '../../../../src/apps/passports/compile/index.ts';
import { documents, items } from '../../../../src/apps/passports/compile/sample/index.ts';
import {
  type Disclosed,
  disclose,
  type IndividualRecord,
  type PassportSource,
  type SignedVersion,
} from '../../../../src/apps/passports/page/disclosure.ts';
import { checked, inputWith, product, rulePackage } from '../compile/support.ts';

/** The sample battery, compiled and signed as the chain of jobs does it: a model's version and an item's that links to it. */

/** RFC 8410: a PKCS #8 head, then the 32 bytes of the seed. */
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex');
export const privateKey = createPrivateKey({
  key: Buffer.concat([pkcs8, Buffer.alloc(32, 7)]),
  format: 'der',
  type: 'pkcs8',
});
export const publicKey = new Uint8Array(
  createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(-32),
);
export const signBytes = (bytes: Uint8Array): Uint8Array => new Uint8Array(sign(null, bytes, privateKey));

export const modelVersion = '6f1c2f0e-0000-4000-8000-000000000002';
export const itemVersion = '6f1c2f0e-0000-4000-8000-000000000003';
const passportId = '6f1c2f0e-0000-4000-8000-000000000001';

export function signed(compiled: Compiled): SignedVersion {
  const { payload, proof, receipt, receiptHash } = compiled;
  return { payload, proof, receipt, signature: signBytes(hexToBytes(receiptHash) ?? new Uint8Array()) };
}

export function compiledSample(
  change: Partial<CompileInput> = {},
  rules: RulePackage = rulePackage,
): { readonly model: Compiled; readonly item: Compiled } {
  const ready = checked(rules);
  const passport = { id: passportId, version: modelVersion };
  const model = compile(inputWith({ ...change, passport, item: null }), ready);
  const item = compile(
    inputWith({
      ...change,
      passport: { id: passportId, version: itemVersion },
      item: change.item ?? (items[0] as Item),
      model: { version: modelVersion, receipt_hash: model.receiptHash },
      salt: 'a5'.repeat(32),
    }),
    ready,
  );
  return { model, item };
}

export function individualRecord(
  seq: number,
  type: string,
  data: JsonObject,
  previous: string | null = null,
): IndividualRecord {
  const at = '2027-06-01T10:00:00Z';
  const content = canonical({
    data,
    occurred_at: at,
    passport_id: passportId,
    previous,
    seq,
    type,
    version: 'bpc-item-event-1',
  });
  const signature = signBytes(sha256(new TextEncoder().encode(content)));
  return { seq, type, at, data, content, signingKey: 'key-1', signature };
}

export function sourceWith(
  change: Partial<PassportSource> = {},
  input: Partial<CompileInput> = {},
  rules: RulePackage = rulePackage,
): PassportSource {
  const { model, item } = compiledSample(input, rules);
  return {
    product: input.product ?? product,
    version: signed(item),
    model: signed(model),
    state: 'ACTIVE',
    versionNumber: 1,
    endedAt: null,
    supersededBy: null,
    ceasedAt: null,
    predecessors: [],
    individual: [individualRecord(1, 'stateOfCharge', { value: { value: 437, scale: 1, unit: '%' } })],
    fieldPoints: new Map(rules.rules.map(({ field, point }) => [field, point])),
    documentNames: new Map(documents.map(({ name, input: { bytes } }) => [sha256Hex(bytes), name])),
    publicKeys: { 'key-1': publicKey },
    origin: 'https://passports.example',
    ...change,
  };
}

export const disclosedSample = (reader: Reader, change: Partial<PassportSource> = {}): Disclosed =>
  disclose(sourceWith(change), reader);
