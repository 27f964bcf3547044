import {
  type AccessPoint,
  accessPoints,
  canonical,
  type FieldResult,
  type Hash,
  type Json,
  type JsonObject,
  type Payload,
  type Product,
  type Proof,
  type Reader,
  type Receipt,
  type RedactedPayload,
  readerPoints,
  receiptHash,
  redactPayload,
  redactProof,
  type Verified,
  verify,
} from '../compile/index.ts';

/*
 * What one reader gets of a passport (BPC-12). Page, PDF, JSON, credentials and bundles are made of a `Disclosed`, and only
 * `disclose` makes one: no format can show what the reader may not see.
 */

/** A compiled version as it is stored. */
export interface SignedVersion {
  readonly payload: Payload | RedactedPayload;
  readonly proof: Proof;
  readonly receipt: Receipt;
  /** 64 bytes, over the 32 bytes of the receipt's hash. */
  readonly signature: Uint8Array;
}

export type VersionState = 'SIGNED' | 'ACTIVE' | 'SUPERSEDED' | 'REVOKED';

/** A signed event of the battery's life (point 4), beside the compiled version. */
export interface IndividualRecord {
  readonly seq: number;
  /** What it is about: `state_of_health`, or the name of an attribute. */
  readonly type: string;
  /** RFC 3339 in UTC. */
  readonly at: string;
  readonly data: JsonObject;
  /** Canonical JSON of everything that is signed. */
  readonly content: string;
  readonly signingKey: string;
  readonly signature: Uint8Array;
}

export interface BatteryReference {
  readonly passportId: string;
  readonly gtin: string;
  readonly serial: string;
}

/** Everything that is known of one passport. */
export interface PassportSource {
  readonly product: Product;
  readonly version: SignedVersion;
  /** The model's version that an item's version links to. */
  readonly model: SignedVersion | null;
  readonly state: VersionState;
  /** Counts the versions of one passport, from 1. */
  readonly versionNumber: number;
  /** Since when it is SUPERSEDED or REVOKED. */
  readonly endedAt: string | null;
  /** The version that took the place of this one. */
  readonly supersededBy: { readonly version: string; readonly issuedAt: string } | null;
  /** Since when the battery is recycled: its passport has ceased to exist, and its address is kept. */
  readonly ceasedAt: string | null;
  readonly predecessors: readonly BatteryReference[];
  readonly individual: readonly IndividualRecord[];
  /** The access point of each field, as the rule packages of version and model say. */
  readonly fieldPoints: ReadonlyMap<string, AccessPoint>;
  /** File names by the hash of the document. */
  readonly documentNames: ReadonlyMap<Hash, string>;
  /** Raw Ed25519 keys by id. */
  readonly publicKeys: Readonly<Record<string, Uint8Array>>;
  /** Where passports of this tenant are served: https://host, without a slash at the end. */
  readonly origin: string;
}

export interface DisclosedVersion {
  readonly payload: RedactedPayload;
  readonly proof: Proof;
  readonly receipt: Receipt;
  readonly receiptHash: Hash;
  readonly signature: Uint8Array;
}

declare const disclosed: unique symbol;

export interface Disclosed
  extends Omit<PassportSource, 'version' | 'model' | 'individual' | 'documentNames'> {
  readonly [disclosed]: true;
  readonly reader: Reader;
  readonly points: readonly AccessPoint[];
  readonly version: DisclosedVersion;
  readonly model: DisclosedVersion | null;
  /** null: withheld. An empty list: there are none. */
  readonly individual: readonly IndividualRecord[] | null;
  /** Only documents whose facts the reader may see, all of them. */
  readonly documentNames: ReadonlyMap<Hash, string>;
}

export function disclose(source: PassportSource, reader: Reader): Disclosed {
  const points = readerPoints[reader];
  const version = discloseVersion(source.version, points);
  const model = source.model === null ? null : discloseVersion(source.model, points);
  const opened = [version, model].flatMap((each) => each?.proof.documents ?? []);
  return {
    product: source.product,
    state: source.state,
    versionNumber: source.versionNumber,
    endedAt: source.endedAt,
    supersededBy: source.supersededBy,
    ceasedAt: source.ceasedAt,
    predecessors: source.predecessors,
    fieldPoints: source.fieldPoints,
    publicKeys: source.publicKeys,
    origin: source.origin,
    reader,
    points,
    version,
    model,
    individual: points.includes(4) ? source.individual : null,
    documentNames: new Map(
      opened.flatMap(({ document }) => {
        const name = source.documentNames.get(document);
        return name === undefined ? [] : [[document, name] as const];
      }),
    ),
  } as Omit<Disclosed, typeof disclosed> as Disclosed;
}

function discloseVersion(version: SignedVersion, points: readonly AccessPoint[]): DisclosedVersion {
  return {
    payload: redactPayload(version.payload, points),
    proof: redactProof(version.proof, points),
    receipt: version.receipt,
    receiptHash: receiptHash(version.receipt),
    signature: version.signature,
  };
}

/** A field that the reader may see, and the version whose payload and proof have it. */
export interface DisclosedField {
  readonly name: string;
  readonly point: AccessPoint;
  readonly result: FieldResult;
  readonly version: DisclosedVersion;
}

/** The item's fields, and the model's where the item's version has none. */
export function disclosedFields({ version, model }: Disclosed): ReadonlyMap<string, DisclosedField> {
  const fields = new Map<string, DisclosedField>();
  for (const from of model === null ? [version] : [model, version])
    for (const point of accessPoints) {
      const part = from.payload.points[point];
      if ('hash' in part) continue;
      for (const [name, result] of Object.entries(part.fields))
        fields.set(name, { name, point, result, version: from });
    }
  return fields;
}

export type SignatureStatus = 'valid' | 'unknown_key' | 'broken';

/** What the reader could find out alone: signature and hashes of what is shown, and the link to the model. */
export function signatureStatus({ version, model, publicKeys }: Disclosed): SignatureStatus {
  const checks = [version, ...(model ? [model] : [])].map((each) => verifyVersion(each, publicKeys));
  const linked = model === null || version.receipt.model?.receipt_hash === model.receiptHash;
  if (!linked || checks.some(({ mismatches }) => mismatches.some(({ part }) => part !== 'key')))
    return 'broken';
  return checks.every(({ ok }) => ok) ? 'valid' : 'unknown_key';
}

export function verifyVersion(
  { payload, proof, receipt, signature }: DisclosedVersion,
  publicKeys: Readonly<Record<string, Uint8Array>>,
): Verified {
  return verify({
    receipt: canonical(receipt as unknown as Json),
    payload: canonical(payload as unknown as Json),
    proof: canonical(proof as unknown as Json),
    signature,
    publicKeys,
  });
}

/** The GS1 Digital Link that the label code carries: stable for the life of the battery. */
export function labelLink(origin: string, gtin: string, serial: string | null): string {
  return serial === null ? `${origin}/01/${gtin}` : `${origin}/01/${gtin}/21/${encodeURIComponent(serial)}`;
}

export const labelLinkOf = ({ origin, version: { receipt } }: Disclosed): string =>
  labelLink(origin, receipt.product.gtin, receipt.serial);
