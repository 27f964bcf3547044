import { DataIntegrityProof } from '@digitalbazaar/data-integrity';
import * as Ed25519Multikey from '@digitalbazaar/ed25519-multikey';
import { createVerifyCryptosuite } from '@digitalbazaar/eddsa-jcs-2022-cryptosuite';
import { defaultDocumentLoader, verifyCredential } from '@digitalbazaar/vc';
import { expect, test } from 'vitest';
import type { JsonObject } from '../../../../src/apps/passports/compile/index.ts';
import { asJwt, credentialOf, withDataIntegrity } from '../../../../src/apps/passports/export/credential.ts';
import { didDocument } from '../../../../src/apps/passports/export/did.ts';
import { encodedList, statusListOf } from '../../../../src/apps/passports/export/status-list.ts';
import type { PassportSource } from '../../../../src/apps/passports/page/disclosure.ts';
import { disclosedSample, publicKey, signBytes } from '../page/sample.ts';

const signer = { keyId: 'key-1', sign: signBytes };
const origin = 'https://passports.example';
const did = didDocument(origin, { 'key-1': publicKey }) as {
  readonly id: string;
  readonly verificationMethod: readonly { readonly id: string }[];
};

/** What a verifier fetches: contexts come with the library, the keys from our DID document. */
async function documentLoader(url: string): Promise<object> {
  const method = did.verificationMethod.find(({ id }) => id === url);
  if (method)
    return { document: { '@context': 'https://w3id.org/security/multikey/v1', ...method }, documentUrl: url };
  if (url === did.id) return { document: did, documentUrl: url };
  return defaultDocumentLoader(url);
}

const verified = (credential: JsonObject) =>
  verifyCredential({
    credential,
    suite: new DataIntegrityProof({ cryptosuite: createVerifyCryptosuite() }),
    documentLoader,
    checkStatus: async () => ({ verified: true }),
    now: new Date('2027-06-01T00:00:00Z'),
  });

test('BPC-16: the credential is verified by the data integrity library of Digital Bazaar, with the keys of did:web', async () => {
  const credential = withDataIntegrity(credentialOf(disclosedSample('public')), signer);
  const result = await verified(credential);
  expect(result.verified, JSON.stringify(result.error)).toBe(true);
  const key = await Ed25519Multikey.from(did.verificationMethod[0] as object);
  expect(key.publicKeyMultibase).toMatch(/^z6Mk/);
  const subject = credential.credentialSubject as JsonObject;
  const changed = { ...credential, credentialSubject: { ...subject, gtin: '00000000000000' } };
  expect((await verified(changed)).verified).toBe(false);
});

test('BPC-16: the status list is a credential of its own; the bit of a version that has ended is set', async () => {
  const list = statusListOf({
    origin,
    labelLink: `${origin}/01/09506000134352/21/S`,
    ended: [1, 9],
    changedAt: '2027-05-01T00:00:00Z',
  });
  const result = await verified(withDataIntegrity(list, signer));
  expect(result.verified, JSON.stringify(result.error)).toBe(true);
  expect(encodedList([1, 9])).toBe((list.credentialSubject as JsonObject).encodedList);
  expect(encodedList([1])).not.toBe(encodedList([2]));
});

test.each([
  ['SIGNED', { state: 'SIGNED' }],
  ['SUPERSEDED', { state: 'SUPERSEDED' }],
  ['REVOKED', { state: 'REVOKED' }],
  ['CEASED', { ceasedAt: '2039-05-01T00:00:00Z' }],
] as const)('BPC-16: a version that is %s has no credential', (state, change: Partial<PassportSource>) => {
  expect(() => credentialOf(disclosedSample('owner', change))).toThrow(state);
});

test('BPC-16: the same version gives the same credential, byte by byte', () => {
  const credential = credentialOf(disclosedSample('authority'));
  expect(asJwt(credential, signer)).toBe(asJwt(credentialOf(disclosedSample('authority')), signer));
  expect(JSON.stringify(withDataIntegrity(credential, signer))).toBe(
    JSON.stringify(withDataIntegrity(credentialOf(disclosedSample('authority')), signer)),
  );
});
