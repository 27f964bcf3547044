import { z } from 'zod';
import { canonicalAscii, parseCanonical } from './canonical.ts';
import { CompileError } from './errors.ts';
import { rulePackageShape } from './rules/schema.ts';
import type { Proof, Receipt, RedactedPayload, RulePackage } from './types.ts';

/*
 * Reads artefacts that came from somewhere else. They must be canonical JSON and have exactly the shape that the compiler
 * writes: what is hashed has one spelling, and nothing rides along unhashed.
 */

const hash = z.string().regex(/^[0-9a-f]{64}$/);
const text = z.string();
const json: z.ZodType<unknown> = z.unknown();
const point = z.union([z.literal(1), z.literal(2), z.literal(3), z.literal(4)]);

const fieldResult = z.discriminatedUnion('status', [
  z.strictObject({ status: z.literal('value'), value: json }),
  z.strictObject({ status: z.literal('not_yet_in_force'), from: text, article: text }),
  z.strictObject({ status: z.literal('undetermined'), reason: text }),
  z.strictObject({ status: z.literal('out_of_scope'), reason: text }),
]);

const part = z.union([
  z.strictObject({ salt: hash, fields: z.record(text, fieldResult) }),
  z.strictObject({ hash }),
]);

const payload = z.strictObject({
  version: z.literal('bpc-payload-1'),
  points: z.strictObject({ 1: part, 2: part, 3: part, 4: part }),
});

const node = <T extends string, S extends z.ZodRawShape>(type: T, data: S) =>
  z.strictObject({
    id: text,
    type: z.literal(type),
    data: z.strictObject({ ...data, salt: text }),
    children_hashes: z.array(hash),
  });

const object = z.record(text, json);
const exact = z.union([z.int(), text]).optional();
const factType = z.enum(['material', 'footprint_stage', 'diligence', 'attribute']);
const source = z.strictObject({ document: hash, row: z.int(), column: text });

const proofNode = z.discriminatedUnion('type', [
  node('field', { field: text, point, expression: text, article: text, result: fieldResult }),
  node('expr', { op: text, value: json, numerator: exact, denominator: exact }),
  node('fact', { fact_type: factType, key: text, payload: object, sources: z.array(source) }),
  node('absent', { fact_type: factType, key: text }),
  node('input', { path: text, value: json }),
]);

const proof = z.strictObject({
  version: z.literal('bpc-proof-1'),
  fields: z.record(text, hash),
  nodes: z.array(proofNode),
  documents: z.array(z.strictObject({ reference: hash, document: hash, points: z.array(point), salt: hash })),
});

const receipt = z.strictObject({
  version: z.literal('bpc-receipt-1'),
  passport_id: text,
  passport_version: text,
  product: z.strictObject({ id: text, gtin: text }),
  serial: text.nullable(),
  model: z.strictObject({ version: text, receipt_hash: hash }).nullable(),
  issued_at: text,
  build: text,
  signing_key: text,
  inputs: z.strictObject({
    snapshot: hash,
    product: hash,
    item: hash,
    salt: hash,
    rules: z.strictObject({ id: text, version: text, hash }),
  }),
  outputs: z.strictObject({ payload: hash, points: z.tuple([hash, hash, hash, hash]), proof: hash }),
});

/** An artefact, or what is wrong with its text and where. */
export type Read<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly at: string; readonly message: string };

function read<T>(shape: z.ZodType, source: string): Read<T> {
  try {
    const parsed = parseCanonical(source);
    canonicalAscii(parsed);
    const { success, error } = shape.safeParse(parsed);
    if (success) return { ok: true, value: parsed as T };
    const [issue] = error.issues;
    return {
      ok: false,
      at: `/${issue?.path.join('/') ?? ''}`,
      message: `does not have the shape of such an artefact: ${issue?.message}`,
    };
  } catch (error) {
    if (!(error instanceof CompileError)) throw error;
    return { ok: false, at: 'text', message: error.message };
  }
}

export const readPayload = (source: string): Read<RedactedPayload> => read(payload, source);
export const readProof = (source: string): Read<Proof> => read(proof, source);
export const readReceipt = (source: string): Read<Receipt> => read(receipt, source);
export const readRules = (source: string): Read<RulePackage> => read(rulePackageShape, source);
