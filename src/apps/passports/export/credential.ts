import { canonicalBytes, type Json, type JsonObject, sha256 } from '../compile/index.ts';
import { passportError } from '../errors.ts';
import { type Disclosed, disclosedFields, labelLinkOf } from '../page/disclosure.ts';
import { base58, didOf } from './did.ts';
import { statusEntry } from './status-list.ts';

/*
 * The passport as a W3C Verifiable Credential 2.0 (BPC-16), of what one reader may see: with a data integrity proof
 * (`eddsa-jcs-2022`), or as a JWT (`vc+jwt`). The issuer is did:web of the host. Nothing depends on the clock: the same
 * version gives the same bytes.
 *
 * Only an ACTIVE version has a credential. One that was given away names its place in a status list (status-list.ts), where
 * a verifier sees that the version has ended.
 */

export interface CredentialSigner {
  /** Also the fragment of the verification method. */
  readonly keyId: string;
  /** Ed25519. */
  readonly sign: (bytes: Uint8Array) => Uint8Array;
}

/** Throws PASSPORT_NOT_ACTIVE for a version that does not count, or no longer. */
export function credentialOf(disclosed: Disclosed): JsonObject {
  const { origin, product, version, model } = disclosed;
  requireActive(disclosed);
  const { receipt, receiptHash } = version;
  const fields = [...disclosedFields(disclosed).values()].map(({ name, result }) => [name, result] as const);
  return {
    '@context': [
      'https://www.w3.org/ns/credentials/v2',
      { '@vocab': `${origin}/contexts/battery-passport#` },
    ],
    id: `urn:uuid:${receipt.passport_version}`,
    type: ['VerifiableCredential', 'BatteryPassportCredential'],
    issuer: didOf(origin),
    validFrom: receipt.issued_at,
    credentialStatus: statusEntry(labelLinkOf(disclosed), disclosed.versionNumber),
    credentialSubject: {
      id: labelLinkOf(disclosed),
      gtin: product.gtin,
      ...(receipt.serial === null ? {} : { serial: receipt.serial }),
      receiptHash,
      ...(model === null ? {} : { modelReceiptHash: model.receiptHash }),
      fields: Object.fromEntries(fields) as unknown as JsonObject,
    },
  };
}

function requireActive({ ceasedAt, state, version: { receipt } }: Disclosed): void {
  if (ceasedAt === null && state === 'ACTIVE') return;
  const why = ceasedAt === null ? state : `CEASED since ${ceasedAt}`;
  throw passportError(
    'PASSPORT_NOT_ACTIVE',
    `version ${receipt.passport_version} is ${why}: there is no credential of it. Read the passport as HTML or JSON instead`,
    { state: ceasedAt === null ? state : 'CEASED' },
  );
}

/** With a proof of the cryptosuite eddsa-jcs-2022. All keys are ASCII, so our canonical JSON is that of RFC 8785. */
export function withDataIntegrity(credential: JsonObject, signer: CredentialSigner): JsonObject {
  const options = {
    type: 'DataIntegrityProof',
    cryptosuite: 'eddsa-jcs-2022',
    created: credential.validFrom ?? null,
    verificationMethod: `${credential.issuer}#${signer.keyId}`,
    proofPurpose: 'assertionMethod',
    '@context': credential['@context'] ?? null,
  };
  const bytes = Buffer.concat([sha256(canonicalBytes(options)), sha256(canonicalBytes(credential))]);
  return { ...credential, proof: { ...options, proofValue: `z${base58(signer.sign(bytes))}` } };
}

export function asJwt(credential: JsonObject, signer: CredentialSigner): string {
  const header = { alg: 'EdDSA', cty: 'vc', kid: `${credential.issuer}#${signer.keyId}`, typ: 'vc+jwt' };
  const part = (json: Json): string => Buffer.from(canonicalBytes(json)).toString('base64url');
  const text = `${part(header)}.${part(credential)}`;
  return `${text}.${Buffer.from(signer.sign(Buffer.from(text))).toString('base64url')}`;
}
