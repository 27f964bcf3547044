import type { TenantQueries } from '../../../host/timeline.ts';
import { passportError } from '../errors.ts';
import { type BundleDocument, bundleOf } from '../export/bundle.ts';
import type { CredentialSigner } from '../export/credential.ts';
import type { Disclosed } from '../page/disclosure.ts';
import { documentBytes } from '../store/documents.ts';
import type { LoadedPassport } from './load.ts';

/** A bundle with the documents that the reader may have. Only their bytes are read from the database. */
export async function makeBundle(
  on: TenantQueries,
  { documents, rules }: LoadedPassport,
  disclosed: Disclosed,
  signer: CredentialSigner,
): Promise<Uint8Array> {
  if (disclosed.ceasedAt !== null)
    throw passportError('PASSPORT_NOT_ACTIVE', 'this passport has ceased: there is nothing to export', {
      state: 'CEASED',
    });
  const wanted = new Map(
    documents.filter(({ sha256 }) => disclosed.documentNames.has(sha256)).map((each) => [each.sha256, each]),
  );
  const read: BundleDocument[] = [];
  for (const { id, name, kind, format } of wanted.values())
    read.push({ name, kind, format, bytes: await documentBytes(on, id) });
  return bundleOf({ disclosed, signer, documents: read, rules: rules.map((each) => each.package) });
}
