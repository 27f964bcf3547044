import type { TenantQueries } from '../../../host/timeline.ts';
import type { JsonObject } from '../compile/types.ts';
import { dppDocument } from '../dpp/document.ts';
import { notFound } from '../errors.ts';
import { catenaXPass } from '../export/catenax/aspect.ts';
import type { CredentialSigner } from '../export/credential.ts';
import type { Means } from '../means.ts';
import { type Disclosed, disclose } from '../page/disclosure.ts';
import { requireCurrentKey } from '../signing/keys.ts';
import type { ExportInput } from '../store/exports.ts';
import { requirePassport } from '../store/passports.ts';
import { requireVersion } from '../store/versions.ts';
import { makeBundle } from './bundle.ts';
import { makeForm } from './forms.ts';
import { type LoadedPassport, loadPassport } from './load.ts';

/** The bytes of an export, as its passport was when it was requested. */
export async function makeExport(
  on: TenantQueries,
  versionId: string,
  input: ExportInput,
  means: Means,
): Promise<Uint8Array> {
  const version = await requireVersion(on, versionId);
  const passport = await requirePassport(on, version.passportId);
  const place = { publicKeys: means.keys.publicKeys, origin: means.origin };
  const loaded = await loadPassport(on, { passport, version }, input.reader, place, input.asOf);
  if (!loaded) throw notFound('signed version', versionId);
  return Buffer.from(await contentOf(on, loaded, disclose(loaded.source, input.reader), input, means));
}

async function contentOf(
  on: TenantQueries,
  loaded: LoadedPassport,
  disclosed: Disclosed,
  { format, language, label, supplement }: ExportInput,
  { keys }: Means,
): Promise<string | Uint8Array> {
  const signer = (): CredentialSigner => {
    const keyId = requireCurrentKey(keys);
    return { keyId, sign: (bytes) => keys.sign(keyId, bytes) };
  };
  switch (format) {
    case 'bundle':
      return makeBundle(on, loaded, disclosed, signer());
    case 'catenax':
      return pretty(
        catenaXPass(disclosed, supplement === null ? undefined : (JSON.parse(supplement) as JsonObject)),
      );
    case 'dpp':
      return pretty(dppDocument(disclosed, 'full'));
    default:
      return makeForm(disclosed, format, { language, label: label ?? undefined }, signer);
  }
}

const pretty = (json: JsonObject): string => `${JSON.stringify(json, null, 2)}\n`;
