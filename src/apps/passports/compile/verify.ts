import { type Read, readPayload, readProof, readReceipt, readRules } from './artefacts.ts';
import { hexToBytes, sha256Hex, utf8 } from './hash.ts';
import { pointHashes, rootHash } from './payload.ts';
import { proofHash } from './proof.ts';
import { parseQr } from './qr.ts';
import { recompute } from './recompute.ts';
import { verifySignature } from './signature.ts';
import {
  accessPoints,
  type FieldResult,
  type Mismatch,
  type Proof,
  type QrContent,
  type Receipt,
  type RedactedPayload,
  type RulePackage,
  type Verified,
  type VerifyInput,
  type VerifyPart,
} from './types.ts';
import { checkFields, checkProof } from './verify-proof.ts';

/**
 * Checks what a reader has, offline (BPC-15). Each artefact is checked alone, then against the receipt, the receipt against the
 * signature and the QR code. Where two do not fit each other, the one that a third confirms is taken for right.
 */
export function verify(input: VerifyInput): Verified {
  const report = new Report();
  const qr = input.qr === undefined ? undefined : readQr(input.qr, report);
  const receipt = report.read('receipt', input.receipt, readReceipt);
  const payload = report.read('payload', input.payload, readPayload);
  const proof = report.read('proof', input.proof, readProof);
  const rules = report.read('rules', input.rules, readRules);

  if (receipt && input.receipt !== undefined) checkReceipt(receipt, input.receipt, qr, input, report);
  else if (input.signature)
    report.add('signature', '', 'there is a signature, and no receipt that it could be of');
  if (payload) checkPayload(payload, receipt, qr, report);
  if (proof) {
    const hash = proofHash(proof);
    report.equal('proof', '/fields', hash, receipt?.outputs.proof, 'the receipt');
    if (!receipt) report.equal('proof', '/fields', hash, qr?.proofHash, 'the QR code');
    report.all(checkProof(proof), 'proof, its nodes and documents');
    if (payload) report.all(checkFields(payload, proof), 'payload, against the proof');
  }
  if (rules && input.rules !== undefined) checkRuleText(rules, input.rules, receipt, proof, report);
  return report.result(payload ? fieldsOf(payload) : {});
}

function readQr(text: string, report: Report): QrContent | undefined {
  const qr = parseQr(text);
  if (!qr) report.add('qr', 'text', 'is no text of the form BPC1|pv=…|ph=…|pr=…|rh=… with 212 characters');
  return qr;
}

function checkReceipt(
  receipt: Receipt,
  text: string,
  qr: QrContent | undefined,
  { signature, publicKeys }: VerifyInput,
  report: Report,
): void {
  const hash = sha256Hex(utf8(text));
  const isSigned = signature && publicKeys && checkSignature(receipt, hash, signature, publicKeys);
  const isInCode = qr && qr.receiptHash === hash;
  if (isSigned) report.fits('signature, over the receipt');
  else if (signature && publicKeys) {
    const known = Object.hasOwn(publicKeys, receipt.signing_key);
    // With the QR code on its side the receipt is right, and the signature is not.
    if (!known) report.add('key', receipt.signing_key, `there is no public key "${receipt.signing_key}"`);
    else if (qr && !isInCode)
      report.add('receipt', '', 'fits neither the signature nor the QR code: it was changed');
    else report.add('signature', '', 'is not the signature of this receipt: one of the two was changed');
  } else if (signature) report.add('key', '', 'there is a signature, and no public key to check it with');

  if (rootHash(receipt.outputs.points) !== receipt.outputs.payload)
    report.add('receipt', '/outputs', 'its payload hash is not the root of its four hashes');
  if (!qr) return;
  const part: VerifyPart = isSigned || isInCode ? 'qr' : 'receipt';
  report.equal(part, 'rh', hash, qr.receiptHash, 'the QR code and the receipt');
  report.equal(part, 'pv', receipt.passport_version, qr.passportVersion, 'the QR code and the receipt');
  report.equal(part, 'ph', receipt.outputs.payload, qr.payloadHash, 'the QR code and the receipt');
  report.equal(part, 'pr', receipt.outputs.proof, qr.proofHash, 'the QR code and the receipt');
}

function checkSignature(
  { signing_key: id }: Receipt,
  hash: string,
  signature: Uint8Array,
  publicKeys: Readonly<Record<string, Uint8Array>>,
): boolean {
  const key = Object.hasOwn(publicKeys, id) ? publicKeys[id] : undefined;
  const message = hexToBytes(hash);
  return key !== undefined && message !== undefined && verifySignature(message, signature, key);
}

function checkPayload(
  payload: RedactedPayload,
  receipt: Receipt | undefined,
  qr: QrContent | undefined,
  report: Report,
): void {
  const hashes = pointHashes(payload);
  if (!receipt) return report.equal('payload', '/points', rootHash(hashes), qr?.payloadHash, 'the QR code');
  for (const [at, point] of accessPoints.entries())
    report.equal('payload', `/points/${point}`, hashes[at] ?? '', receipt.outputs.points[at], 'the receipt');
}

function checkRuleText(
  rules: RulePackage,
  text: string,
  receipt: Receipt | undefined,
  proof: Proof | undefined,
  report: Report,
): void {
  report.equal('rules', '', sha256Hex(utf8(text)), receipt?.inputs.rules.hash, 'the receipt');
  if (!proof || !report.ok) return;
  const { mismatches, recomputed } = recompute(rules, proof);
  report.all(mismatches, `${recomputed} fields, computed again from their facts`);
}

function fieldsOf(payload: RedactedPayload): Readonly<Record<string, FieldResult>> {
  const parts = accessPoints.map((point) => payload.points[point]);
  return Object.assign({}, ...parts.map((part) => ('hash' in part ? {} : part.fields)));
}

class Report {
  readonly #mismatches: Mismatch[] = [];
  readonly #checked: string[] = [];

  get ok(): boolean {
    return this.#mismatches.length === 0;
  }

  add(part: VerifyPart, at: string, message: string): void {
    this.#mismatches.push({ part, at, message: `${part}${at && ` ${at}`}: ${message}` });
  }

  fits(what: string): void {
    this.#checked.push(what);
  }

  all(mismatches: readonly Mismatch[], what: string): void {
    for (const { part, at, message } of mismatches) this.add(part, at, message);
    if (mismatches.length === 0) this.fits(what);
  }

  /** Nothing to compare with is no mismatch. */
  equal(part: VerifyPart, at: string, actual: string, expected: string | undefined, whose: string): void {
    if (expected === undefined) return;
    if (actual === expected) this.fits(`${part}${at && ` ${at}`}, against ${whose}`);
    else this.add(part, at, `${actual} does not fit ${whose}, which says ${expected}`);
  }

  read<T>(part: VerifyPart, text: string | undefined, reader: (text: string) => Read<T>): T | undefined {
    if (text === undefined) return undefined;
    const result = reader(text);
    if (result.ok) return result.value;
    this.add(part, result.at, result.message);
    return undefined;
  }

  result(fields: Readonly<Record<string, FieldResult>>): Verified {
    return { ok: this.ok, checked: this.#checked, mismatches: this.#mismatches, fields };
  }
}
