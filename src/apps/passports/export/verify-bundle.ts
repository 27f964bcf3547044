import { z } from 'zod';
import { readProof, readReceipt, readRules } from '../compile/artefacts.ts';
import {
  canonical,
  factHash,
  hashJson,
  type Json,
  type JsonObject,
  type Proof,
  parseDocument,
  type RulePackage,
  sha256,
  sha256Hex,
} from '../compile/index.ts';
import { recompute } from '../compile/recompute.ts';
import { verifySignature } from '../compile/signature.ts';
import {
  type Envelope,
  type EnvelopeOptions,
  type EnvelopeReport,
  keysIn,
  type ReportedMismatch,
  readEnvelope,
  verifyEnvelope,
} from './envelope.ts';
import { untar } from './tar.ts';

/** Checks a bundle offline (BPC-15): manifest and files, the passport in it, its rules, and its documents row by row. */

export const bundleFormat = 'tallyman-bundle-1';

const manifestShape = z.looseObject({
  format: z.literal(bundleFormat),
  passport_version: z.string(),
  signing_key: z.string(),
  files: z.array(z.strictObject({ path: z.string(), sha256: z.string(), size: z.int() })),
});
const indexShape = z.array(
  z.strictObject({
    path: z.string(),
    name: z.string(),
    kind: z.enum(['bill_of_materials', 'carbon_footprint', 'due_diligence', 'data_sheet']),
    format: z.enum(['csv', 'json']),
    sha256: z.string(),
  }),
);
type DocumentEntry = z.infer<typeof indexShape>[number];
type Files = ReadonlyMap<string, Uint8Array>;

export const isBundle = (bytes: Uint8Array): boolean =>
  Buffer.from(bytes.subarray(257, 262)).toString('latin1') === 'ustar';

/** Never throws for bad input: says what is wrong with it. */
export function verifyBundle(bytes: Uint8Array, given: EnvelopeOptions = {}): EnvelopeReport {
  const report = new BundleReport();
  const files = untar(bytes);
  if (typeof files === 'string') return report.failed(given, files);
  const envelope = readEnvelope(textOf(files, 'passport.json') ?? '');
  if (typeof envelope === 'string') return report.failed(given, `passport.json ${envelope}`);
  const manifest = manifestShape.safeParse(jsonOf(files, 'manifest.json')).data;
  if (!manifest) return report.failed(given, 'manifest.json is not there, or is no manifest of a bundle');
  checkManifest(manifest, files, given.keys ?? keysIn(envelope), report);
  const packages = rulePackages(files, report);
  const passport = verifyEnvelope(textOf(files, 'passport.json') ?? '', {
    ...given,
    rulesByHash: new Map(packages.flatMap(({ text }) => (text === undefined ? [] : [[hashOf(text), text]]))),
  });
  const proofs = proofsOf(envelope, report);
  for (const { rules, text } of packages) if (text === undefined) checkRulesAlone(rules, proofs, report);
  checkDocuments(files, proofs, report);
  const receipt = readReceipt(envelope.version.receipt);
  if (receipt.ok && receipt.value.passport_version !== manifest.passport_version)
    report.add('manifest', 'manifest.json', 'names another version than passport.json');
  return report.with(passport);
}

const hashOf = (text: string): string => sha256Hex(new TextEncoder().encode(text));

function checkManifest(
  { files: listed, signing_key: keyId }: z.infer<typeof manifestShape>,
  files: Files,
  keys: Readonly<Record<string, Uint8Array>>,
  report: BundleReport,
): void {
  const key = Object.hasOwn(keys, keyId) ? keys[keyId] : undefined;
  const signature = Buffer.from(textOf(files, 'manifest.sig') ?? '', 'base64url');
  const message = sha256(files.get('manifest.json') ?? new Uint8Array());
  if (!key) report.add('key', keyId, `there is no public key "${keyId}"`);
  else if (verifySignature(message, signature, key)) report.fits('bundle: signature, over the manifest');
  else report.add('signature', 'manifest.sig', 'is not the signature of manifest.json');
  const expected = new Set(['manifest.json', 'manifest.sig']);
  for (const { path, sha256: hash } of listed) {
    expected.add(path);
    const bytes = files.get(path);
    if (!bytes) report.add('file', path, 'is in the manifest, and not in the bundle');
    else if (sha256Hex(bytes) !== hash) report.add('file', path, 'was changed');
  }
  for (const path of files.keys())
    if (!expected.has(path)) report.add('file', path, 'is in the bundle, and not in the manifest');
  if (report.isClean) report.fits(`bundle: ${listed.length} files, against the manifest`);
}

interface ReadPackage {
  readonly rules: RulePackage;
  /** With its test cases, as it was hashed; undefined without them. */
  readonly text: string | undefined;
}

function rulePackages(files: Files, report: BundleReport): readonly ReadPackage[] {
  return [...files.keys()]
    .filter((path) => path.startsWith('rules/'))
    .flatMap((path) => {
      const isWhole = !path.endsWith('.without-cases.json');
      const text = textOf(files, path) ?? '';
      const read = readRules(isWhole ? text : canonicalText(text));
      if (read.ok) return [{ rules: read.value, text: isWhole ? text : undefined }];
      report.add('rules', path, read.message);
      return [];
    });
}

function checkRulesAlone(rules: RulePackage, proofs: readonly Proof[], report: BundleReport): void {
  for (const proof of proofs) {
    const { mismatches, recomputed } = recompute(rules, proof);
    for (const { part, at, message } of mismatches) report.add(part, at, message);
    if (mismatches.length === 0 && recomputed > 0)
      report.fits(`${recomputed} fields, computed again from their facts`);
  }
}

function proofsOf({ version, model }: Envelope, report: BundleReport): readonly Proof[] {
  return [version, ...(model ? [model] : [])].flatMap(({ proof }) => {
    const read = readProof(proof);
    if (!read.ok) report.add('proof', read.at, read.message);
    return read.ok ? [read.value] : [];
  });
}

/** Every fact whose document is there must stand in it, in the row and column that the proof names. */
function checkDocuments(files: Files, proofs: readonly Proof[], report: BundleReport): void {
  const index = indexShape.safeParse(jsonOf(files, 'documents/index.json')).data;
  if (!index)
    return report.add('documents', 'documents/index.json', 'is not there, or is no list of documents');
  const claims = claimsOf(proofs);
  for (const entry of index) {
    const said = factsIn(entry, files, report);
    if (!said) continue;
    const claimed = claims.get(entry.sha256);
    if (!claimed) {
      report.add('documents', entry.name, 'is in the bundle, and no proof names it');
      continue;
    }
    const wrong = claimed.filter(({ identity }) => !said.has(identity));
    for (const { where } of wrong.slice(0, 10))
      report.add('documents', entry.name, `does not say what the proof takes from ${where}`);
    if (wrong.length === 0)
      report.fits(`documents: ${entry.name}, ${claimed.length} facts where the proof says`);
  }
}

interface Claim {
  readonly identity: string;
  readonly where: string;
}

/** What the proofs say is in each document. */
function claimsOf(proofs: readonly Proof[]): ReadonlyMap<string, readonly Claim[]> {
  const claims = new Map<string, Claim[]>();
  for (const { nodes, documents } of proofs) {
    const names = new Map(documents.map(({ reference, document }) => [reference, document]));
    for (const { document } of documents) if (!claims.has(document)) claims.set(document, []);
    for (const { type, data } of nodes) {
      if (type !== 'fact') continue;
      for (const { document, row, column } of data.sources as readonly JsonObject[]) {
        const hash = names.get(String(document));
        if (hash !== undefined)
          claims.get(hash)?.push({
            identity: canonical([
              data.fact_type ?? '',
              data.key ?? '',
              hashJson(data.payload ?? null),
              row ?? 0,
              column ?? '',
            ]),
            where: `row ${row}, column "${column}"`,
          });
      }
    }
  }
  return claims;
}

function factsIn(
  { path, name, kind, format, sha256: hash }: DocumentEntry,
  files: Files,
  report: BundleReport,
): ReadonlySet<string> | undefined {
  const bytes = files.get(path);
  const parsed = bytes && sha256Hex(bytes) === hash ? parseDocument({ kind, format, bytes }) : undefined;
  if (!parsed?.ok) {
    report.add('documents', name, 'is not there, was changed, or cannot be read');
    return undefined;
  }
  return new Set(
    parsed.facts.flatMap((fact) =>
      fact.sources.map(({ row, column }) => canonical([fact.type, fact.key, factHash(fact), row, column])),
    ),
  );
}

const textOf = (files: Files, path: string): string | undefined => {
  const bytes = files.get(path);
  return bytes && Buffer.from(bytes).toString('utf8');
};

function jsonOf(files: Files, path: string): unknown {
  try {
    return JSON.parse(textOf(files, path) ?? '');
  } catch {
    return undefined;
  }
}

function canonicalText(text: string): string {
  try {
    return canonical(JSON.parse(text) as Json);
  } catch {
    return text;
  }
}

class BundleReport {
  readonly #checked: string[] = [];
  readonly #mismatches: ReportedMismatch[] = [];

  get isClean(): boolean {
    return this.#mismatches.length === 0;
  }

  add(part: string, at: string, message: string): void {
    this.#mismatches.push({ part, at, message: `${part} ${at}: ${message}` });
  }

  fits(what: string): void {
    this.#checked.push(what);
  }

  failed(given: EnvelopeOptions, message: string): EnvelopeReport {
    const mismatches = [{ part: 'file', at: '', message }];
    return { ok: false, keysFrom: given.keys ? 'reader' : 'file', state: null, checked: [], mismatches };
  }

  with(passport: EnvelopeReport): EnvelopeReport {
    const mismatches = [...passport.mismatches, ...this.#mismatches];
    return {
      ...passport,
      ok: mismatches.length === 0,
      checked: [...passport.checked, ...this.#checked],
      mismatches,
    };
  }
}
