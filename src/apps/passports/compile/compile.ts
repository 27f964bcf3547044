import { canonicalAscii, hashJson } from './canonical.ts';
import { checkInput } from './compile-input.ts';
import { CompileError, type CompileErrorCode } from './errors.ts';
import { accessOfFact } from './facts.ts';
import { bytesToHex, deriveKey, sha256Hex, utf8 } from './hash.ts';
import { pointHashes, rootHash } from './payload.ts';
import { documentReference, ProofBuilder, proofHash } from './proof.ts';
import type { CheckedRules } from './rules/check.ts';
import { type FieldOutcome, itemRules, type RuleTracer, runRules } from './rules/run.ts';
import {
  type AccessPoint,
  accessPoints,
  type Compiled,
  type CompileInput,
  type CompileLimits,
  type DocumentOpening,
  type Fact,
  type Hash,
  type Json,
  type Payload,
  type PayloadPart,
  type Receipt,
} from './types.ts';

export const compileLimits: CompileLimits = {
  payloadBytes: 128 * 1024,
  proofBytes: 256 * 1024,
  receiptBytes: 16 * 1024,
};

/**
 * Facts and rules in, passport out (BPC-8). Pure: everything that could differ between two runs is in the input, so that a
 * retry, and a replay years later, gives the same bytes.
 */
export function compile(
  input: CompileInput,
  rules: CheckedRules,
  limits: CompileLimits = compileLimits,
): Compiled {
  const { secret, facts } = checkInput(input);
  const builder = new ProofBuilder(deriveKey(secret, 'proof'), limits.proofBytes);
  const documents = new Openings(facts, secret);
  const selected = input.model === null ? rules.rules : itemRules(rules);
  const outcomes = runRules(selected, { ...input, facts }, tracer(builder, documents));

  const payload = payloadOf(outcomes, secret);
  const points = pointHashes(payload);
  const fields = Object.fromEntries(outcomes.map(({ rule, node }) => [rule.field, node]));
  const { proof, text: proofText } = builder.build(fields, documents.all());
  const hashes = { payload: rootHash(points), points, proof: proofHash(proof) };
  const receipt = receiptOf(input, rules, secret, hashes);

  const bytes = {
    payload: sized(
      'PAYLOAD_TOO_LARGE',
      'payload',
      canonicalAscii(payload as unknown as Json),
      limits.payloadBytes,
    ),
    proof: sized('PROOF_TOO_LARGE', 'proof', proofText, limits.proofBytes),
    receipt: sized(
      'RECEIPT_TOO_LARGE',
      'receipt',
      canonicalAscii(receipt as unknown as Json),
      limits.receiptBytes,
    ),
  };
  return {
    payload,
    proof,
    receipt,
    payloadHash: hashes.payload,
    proofHash: hashes.proof,
    receiptHash: sha256Hex(bytes.receipt),
    bytes,
  };
}

function payloadOf(outcomes: readonly FieldOutcome[], secret: Uint8Array): Payload {
  const part = (point: AccessPoint): PayloadPart => ({
    salt: bytesToHex(deriveKey(secret, `point|${point}`)),
    fields: Object.fromEntries(
      outcomes.filter(({ rule }) => rule.point === point).map(({ rule, result }) => [rule.field, result]),
    ),
  });
  return { version: 'bpc-payload-1', points: { 1: part(1), 2: part(2), 3: part(3), 4: part(4) } };
}

/** The openings of documents that the proof names, each with a salted reference and the access points of all its facts. */
class Openings {
  readonly #points: ReadonlyMap<Hash, readonly AccessPoint[]>;
  readonly #secret: Uint8Array;
  readonly #made = new Map<Hash, DocumentOpening>();

  constructor(facts: readonly Fact[], secret: Uint8Array) {
    this.#points = pointsOfDocuments(facts);
    this.#secret = secret;
  }

  of(document: Hash): DocumentOpening {
    const known = this.#made.get(document);
    if (known) return known;
    const salt = bytesToHex(deriveKey(this.#secret, `document|${document}`));
    const opening = { document, points: this.#points.get(document) ?? [], salt };
    const made = { reference: documentReference(opening), ...opening };
    this.#made.set(document, made);
    return made;
  }

  all(): readonly DocumentOpening[] {
    return [...this.#made.values()].sort((a, b) => (a.document < b.document ? -1 : 1));
  }
}

const pointsKnown = new WeakMap<readonly Fact[], ReadonlyMap<Hash, readonly AccessPoint[]>>();

/** Computed once for each snapshot, as its order is (compile-input.ts). */
function pointsOfDocuments(facts: readonly Fact[]): ReadonlyMap<Hash, readonly AccessPoint[]> {
  const known = pointsKnown.get(facts);
  if (known) return known;
  const points = new Map<Hash, Set<AccessPoint>>();
  for (const { type, key, sources } of facts) {
    const point = accessOfFact(type, key);
    for (const { document } of sources) points.set(document, (points.get(document) ?? new Set()).add(point));
  }
  const found = new Map(
    [...points].map(
      ([document, seen]) => [document, accessPoints.filter((point) => seen.has(point))] as const,
    ),
  );
  pointsKnown.set(facts, found);
  return found;
}

function tracer(builder: ProofBuilder, documents: Openings): RuleTracer {
  const facts = new Map<string, Hash>();
  return {
    expression: ({ rule, start, end, op }, value, children, more) =>
      builder.add('expr', `${rule}@${start}:${end}`, { op, value, ...more }, children),
    list: (name, children) =>
      builder.add('expr', name, { op: 'id', value: { records: children.length } }, children),
    fact: ({ type, key, payload, sources }) => {
      const id = `${type}:${key}`;
      const known = facts.get(id);
      if (known !== undefined) return known;
      const named = sources.map(({ document, row, column }) => ({
        document: documents.of(document).reference,
        row,
        column,
      }));
      const hash = builder.add('fact', id, { fact_type: type, key, payload, sources: named }, []);
      facts.set(id, hash);
      return hash;
    },
    absent: (type, key) => builder.add('absent', `${type}:${key}`, { fact_type: type, key }, []),
    input: (path, value) => builder.add('input', path, { path, value }, []),
    field: ({ field, point, expression, article }, result, child) =>
      builder.add(
        'field',
        field,
        { field, point, expression, article, result: result as Json },
        child === undefined ? [] : [child],
      ),
  };
}

/**
 * Binds inputs and outputs. It is public, so that inputs which hold withheld data go in as commitments: their plain hash
 * would let anybody try candidates for the one value that they do not know.
 */
function receiptOf(
  input: CompileInput,
  rules: CheckedRules,
  secret: Uint8Array,
  outputs: Receipt['outputs'],
): Receipt {
  const commit = (label: string, value: Json): Hash =>
    hashJson({ label, salt: bytesToHex(deriveKey(secret, `input|${label}`)), value });
  return {
    version: 'bpc-receipt-1',
    passport_id: input.passport.id,
    passport_version: input.passport.version,
    product: { id: input.product.id, gtin: input.product.gtin },
    serial: input.item?.serial ?? null,
    model: input.model,
    issued_at: input.issuedAt,
    build: input.build,
    signing_key: input.signingKey,
    inputs: {
      snapshot: commit('snapshot', input.snapshot.hash),
      product: commit('product', input.product as unknown as Json),
      item: commit('item', input.item as unknown as Json),
      salt: bytesToHex(deriveKey(secret, 'commitment')),
      rules: { id: rules.package.id, version: rules.package.version, hash: rules.hash },
    },
    outputs,
  };
}

function sized(code: CompileErrorCode, what: string, text: string, limit: number): Uint8Array {
  const bytes = utf8(text);
  if (bytes.length <= limit) return bytes;
  throw new CompileError(
    code,
    `the ${what} has ${bytes.length} bytes; ${limit} are allowed. Raise the limit, or shorten what rules give`,
    { bytes: bytes.length, limit },
  );
}
