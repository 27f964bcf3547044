import { posix } from 'node:path';
import {
  type AccessPoint,
  accessOfFact,
  canonicalBytes,
  type DocumentFormat,
  type DocumentKind,
  type Hash,
  type Json,
  type JsonObject,
  type Proof,
  type RulePackage,
  sha256,
  sha256Hex,
} from '../compile/index.ts';
import { dppDocument } from '../dpp/document.ts';
import { type Disclosed, labelLinkOf } from '../page/disclosure.ts';
import { renderPage } from '../page/page.ts';
import { languages } from '../page/texts.ts';
import { viewOf } from '../page/view.ts';
import { renderPdf } from '../print/pdf.ts';
import { printableQrPng } from '../qr/png.ts';
import { asJwt, type CredentialSigner, credentialOf, withDataIntegrity } from './credential.ts';
import { didDocument } from './did.ts';
import { envelopeOf } from './envelope.ts';
import { type TarFile, tarOf } from './tar.ts';
import { bundleFormat } from './verify-bundle.ts';

/*
 * Everything of one passport that one reader may have, in one archive (BPC-16): another host can serve the files as they are,
 * and `tallyman verify` checks them offline. A manifest lists the files with their hashes, and is signed.
 */

export interface BundleDocument {
  readonly name: string;
  readonly kind: DocumentKind;
  readonly format: DocumentFormat;
  readonly bytes: Uint8Array;
}

export interface BundleSource {
  readonly disclosed: Disclosed;
  readonly signer: CredentialSigner;
  /** Of the snapshots of version and model; those that the reader may not have are left out. */
  readonly documents: readonly BundleDocument[];
  /** The rule packages of version and model. */
  readonly rules: readonly RulePackage[];
}

export async function bundleOf(source: BundleSource): Promise<Uint8Array> {
  const { disclosed, signer } = source;
  const { receipt } = disclosed.version;
  const files: readonly TarFile[] = [
    json('passport.json', envelopeOf(disclosed)),
    json('dpp.json', dppDocument(disclosed, 'full')),
    json('did.json', didDocument(disclosed.origin, disclosed.publicKeys)),
    json('facts.json', factsOf(disclosed)),
    ...credentials(disclosed, signer),
    ...rules(source),
    ...documents(source),
    ...(await pages(disclosed)),
  ];
  const manifest = canonicalBytes({
    format: bundleFormat,
    passport_id: receipt.passport_id,
    passport_version: receipt.passport_version,
    label_link: labelLinkOf(disclosed),
    reader: disclosed.reader,
    state: disclosed.state,
    signing_key: signer.keyId,
    files: files.map(({ path, bytes }) => ({ path, sha256: sha256Hex(bytes), size: bytes.length })),
  });
  const signature = Buffer.from(signer.sign(sha256(manifest))).toString('base64url');
  return tarOf([
    { path: 'manifest.json', bytes: manifest },
    { path: 'manifest.sig', bytes: Buffer.from(signature) },
    ...files,
  ]);
}

const json = (path: string, content: object): TarFile => ({
  path,
  bytes: Buffer.from(`${JSON.stringify(content, null, 2)}\n`),
});

/** None of a version that does not count. */
function credentials(disclosed: Disclosed, signer: CredentialSigner): readonly TarFile[] {
  if (disclosed.state !== 'ACTIVE' || disclosed.ceasedAt !== null) return [];
  const credential = credentialOf(disclosed);
  return [
    json('credential.jsonld', withDataIntegrity(credential, signer)),
    { path: 'credential.jwt', bytes: Buffer.from(asJwt(credential, signer)) },
  ];
}

const proofsOf = ({ version, model }: Disclosed): readonly Proof[] => [
  version.proof,
  ...(model ? [model.proof] : []),
];

/** The facts that the reader may see, each once, with the documents that the reader may know. */
function factsOf(disclosed: Disclosed): readonly JsonObject[] {
  const facts = new Map<string, JsonObject>();
  for (const { nodes, documents: opened } of proofsOf(disclosed)) {
    const names = new Map(opened.map(({ reference, document }) => [reference, document]));
    for (const { type, data } of nodes) {
      if (type !== 'fact') continue;
      const sources = (data.sources as readonly JsonObject[]).map(
        ({ document, row = null, column = null }) => ({
          document: names.get(String(document)) ?? null,
          row,
          column,
        }),
      );
      const { fact_type: factType = '', key = '', payload = null } = data;
      facts.set(`${factType}/${key}`, { type: factType, key, payload, sources });
    }
  }
  return [...facts.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, fact]) => fact);
}

/** Test cases hold figures, too: without the right to see all of them a reader gets the rules alone. */
function rules({ disclosed: { points }, rules: packages }: BundleSource): readonly TarFile[] {
  const unique = new Map(packages.map((each) => [`${each.id}-${each.version}`, each]));
  return [...unique].map(([name, each]) =>
    mayReadCases(each, points)
      ? { path: `rules/${name}.json`, bytes: canonicalBytes(each as unknown as Json) }
      : json(`rules/${name}.without-cases.json`, { ...each, testCases: [] }),
  );
}

function mayReadCases({ testCases, rules: all }: RulePackage, points: readonly AccessPoint[]): boolean {
  const pointOf = new Map(all.map(({ field, point }) => [field, point]));
  return testCases.every(
    ({ facts, expect }) =>
      facts.every(({ type, key }) => points.includes(accessOfFact(type, key))) &&
      Object.keys(expect).every((field) => points.includes(pointOf.get(field) ?? 1)),
  );
}

/** A document is in it if the reader may see all of its facts: then the proof opens the reference to it. */
function documents({ disclosed, documents: all }: BundleSource): readonly TarFile[] {
  const opened = new Set<Hash>(
    proofsOf(disclosed).flatMap((proof) => proof.documents.map(({ document }) => document)),
  );
  const files = all
    .map((each) => ({ ...each, hash: sha256Hex(each.bytes) }))
    .filter(({ hash }) => opened.has(hash))
    .map((each) => ({ ...each, path: `documents/${each.hash}${extensionOf(each.name)}` }));
  return [
    json(
      'documents/index.json',
      files.map(({ path, name, kind, format, hash }) => ({ path, name, kind, format, sha256: hash })),
    ),
    ...files.map(({ path, bytes }) => ({ path, bytes })),
  ];
}

/** Names come from uploads: only a plain extension is taken over. */
const extensionOf = (name: string): string => /^\.[a-z]{1,8}$/.exec(posix.extname(name))?.[0] ?? '';

async function pages(disclosed: Disclosed): Promise<readonly TarFile[]> {
  const view = viewOf(disclosed);
  const files: TarFile[] = [
    { path: 'codes/label.png', bytes: printableQrPng(view.labelLink) },
    { path: 'codes/document.png', bytes: printableQrPng(view.documentCode) },
  ];
  for (const language of languages) {
    files.push({ path: `page/${language}.html`, bytes: Buffer.from(renderPage(view, language)) });
    files.push({ path: `page/${language}.pdf`, bytes: await renderPdf(view, language) });
  }
  return files;
}
