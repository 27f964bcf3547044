/**
 * The passport compiler: a pure library. No database, no clock, no random numbers, nothing of Node: it runs in a browser and
 * in `tallyman verify` as well as in a worker. The same input gives the same bytes, everywhere.
 *
 *   bytes of documents ─ parseDocument ─▶ facts ─ buildSnapshot ─▶ snapshot ─┐
 *   rule package (CEL) ─ checkRules ────▶ checked rules ─────────────────────┼─ compile ─▶ payload · proof · receipt
 *   product, item, issued_at, build, signing key id, salt ──────────────────┘
 *   payload, proof ─ redactPayload, redactProof ─▶ what one reader may see ─ verify ─▶ what fits and what does not
 *
 * **Documents and facts.** `parseDocument` gives either all facts or all problems (row and column), never both. Facts that are
 * equal but for their sources are one fact: `mergeFacts`. `factHash` is the payload's hash (the unique key of BPC-3).
 * `parseItems` reads a list of batteries with serial numbers.
 *
 * **Snapshot.** `buildSnapshot(facts, documents)` throws DUPLICATE_FACT if two payloads claim one (type, key). A superseded
 * document gives nothing.
 *
 * **Rules.** `parseRulePackage` takes JSON from outside and checks its shape. `checkRules` parses and type-checks a package once; keep what it returns for many compiles. `runTestCases` runs
 * the package's cases; publish only if all passed. In an expression:
 *   `materials` list<Material> · `footprint` list<FootprintStage> · `diligence` list<Diligence> · `sheet` the data sheet, by
 *   attribute · `product` · `item` · `fields.<name>` the value of another rule
 *   `div(a, b, digits)` `round(a, digits)` `sum(list)` `shares(list, digits)` `count(cycles)` `kWh(wh)` `Kg("12.5")`
 *
 * **Compile.** `compile(input, rules, limits)`. Errors are `CompileError` with a code of BPC-13. `payload.points[n]` has the
 * fields of access point n and its salt. Keep `input.salt` secret: with it one can try candidates for withheld values.
 * Sign the 32 bytes of `receiptHash` with Ed25519. The receipt is public; payload and proof go out redacted only.
 *
 * **Verify.** `verify` takes what the reader has (QR text, receipt, signature, keys, redacted payload and proof as texts) and
 * checks each alone and against the others. It names what does not fit, and never throws for bad input.
 *
 * **SHA-256** is that of @noble/hashes. A worker calls `setSha256` once with the faster one of its platform.
 */
export { type Attribute, attributeNamed, attributes, mandatoryFor } from './attributes.ts';
export { canonical, canonicalBytes, hashJson, parseCanonical } from './canonical.ts';
export { compile, compileLimits } from './compile.ts';
export { documentLimits, parseDocument, parseItems } from './documents/parse.ts';
export { CompileError, type CompileErrorCode, type CompileErrorDetails } from './errors.ts';
export { accessOfFact, factHash, mergeFacts } from './facts.ts';
export { bytesToHex, hexToBytes, setSha256, sha256, sha256Hex } from './hash.ts';
export { payloadHash, redactPayload } from './payload.ts';
export { proofHash, redactProof } from './proof.ts';
export { formatQr, parseQr } from './qr.ts';
export { receiptHash } from './receipt.ts';
export { type CheckedRules, checkRules, rulesHash } from './rules/check.ts';
export { parseRulePackage } from './rules/schema.ts';
export { runTestCases } from './rules/test-cases.ts';
export { buildSnapshot, snapshotHash } from './snapshot.ts';
export * from './types.ts';
export { verify } from './verify.ts';
