import { type AttributeGroup, attributeNamed, attributes } from '../compile/attributes.ts';
import {
  type AccessPoint,
  accessPoints,
  type FieldResult,
  formatQr,
  type Hash,
  type Product,
  type Reader,
} from '../compile/index.ts';
import { type Derivation, Derivations } from './derivation.ts';
import {
  type BatteryReference,
  type Disclosed,
  disclosedFields,
  type IndividualRecord,
  labelLinkOf,
  type SignatureStatus,
  signatureStatus,
  type VersionState,
} from './disclosure.ts';

/** A passport as a person reads it, before a language is chosen: page and PDF are made of it. */
export interface PassportView {
  readonly reader: Reader;
  readonly product: Product;
  readonly serial: string | null;
  readonly passportId: string;
  readonly versionId: string;
  readonly issuedAt: string;
  readonly state: VersionState | 'CEASED';
  readonly supersededAt: string | null;
  readonly ceasedAt: string | null;
  /** Since when it is SUPERSEDED or REVOKED. */
  readonly endedAt: string | null;
  readonly groups: readonly {
    readonly group: AttributeGroup | 'other';
    readonly fields: readonly FieldView[];
  }[];
  readonly withheld: readonly { readonly point: AccessPoint; readonly fields: readonly string[] }[];
  /** null: withheld. */
  readonly individual: readonly IndividualRecord[] | null;
  readonly predecessors: readonly (BatteryReference & { readonly link: string })[];
  readonly signature: SignatureStatus;
  readonly hashes: { readonly receipt: Hash; readonly payload: Hash; readonly proof: Hash };
  readonly rules: string;
  readonly key: string;
  readonly labelLink: string;
  readonly documentCode: string;
  readonly documentNames: ReadonlyMap<Hash, string>;
}

export interface FieldView {
  readonly name: string;
  readonly point: AccessPoint;
  readonly result: FieldResult;
  readonly derivation: Derivation | undefined;
}

const order = new Map(attributes.map(({ name }, at) => [name, at]));
const groupOf = (name: string): AttributeGroup | 'other' => attributeNamed(name)?.group ?? 'other';
const groups: readonly (AttributeGroup | 'other')[] = [
  'identification',
  'footprint',
  'performance',
  'materials',
  'circularity',
  'diligence',
  'conformity',
  'other',
];

export function viewOf(disclosed: Disclosed): PassportView {
  const { version, product, reader } = disclosed;
  const { receipt, receiptHash } = version;
  const isCeased = disclosed.ceasedAt !== null;
  const fields = isCeased ? [] : fieldViews(disclosed);
  return {
    reader,
    product,
    serial: receipt.serial,
    passportId: receipt.passport_id,
    versionId: receipt.passport_version,
    issuedAt: receipt.issued_at,
    state: isCeased ? 'CEASED' : disclosed.state,
    supersededAt: disclosed.supersededBy?.issuedAt ?? null,
    ceasedAt: disclosed.ceasedAt,
    endedAt: disclosed.endedAt,
    groups: groups
      .map((group) => ({ group, fields: fields.filter(({ name }) => groupOf(name) === group) }))
      .filter((each) => each.fields.length > 0),
    withheld: isCeased ? [] : withheldOf(disclosed, fields),
    individual: isCeased || receipt.serial === null ? [] : disclosed.individual,
    predecessors: disclosed.predecessors.map(({ passportId, gtin, serial }) => ({
      passportId,
      gtin,
      serial,
      link: `/01/${gtin}/21/${encodeURIComponent(serial)}`,
    })),
    signature: signatureStatus(disclosed),
    hashes: { receipt: receiptHash, payload: receipt.outputs.payload, proof: receipt.outputs.proof },
    rules: `${receipt.inputs.rules.id} ${receipt.inputs.rules.version}`,
    key: receipt.signing_key,
    labelLink: labelLinkOf(disclosed),
    documentCode: formatQr({
      passportVersion: receipt.passport_version,
      payloadHash: receipt.outputs.payload,
      proofHash: receipt.outputs.proof,
      receiptHash,
    }),
    documentNames: disclosed.documentNames,
  };
}

function fieldViews(disclosed: Disclosed): readonly FieldView[] {
  const derivations = new Map(
    [disclosed.version, disclosed.model].flatMap((each) => (each ? [[each, new Derivations(each)]] : [])),
  );
  return [...disclosedFields(disclosed).values()]
    .map(({ name, point, result, version }) => ({
      name,
      point,
      result,
      derivation: derivations.get(version)?.of(name),
    }))
    .sort((a, b) => (order.get(a.name) ?? 999) - (order.get(b.name) ?? 999));
}

/** The proof names all fields, so that everybody sees that something is withheld. */
function withheldOf(
  { version, model, fieldPoints }: Disclosed,
  fields: readonly FieldView[],
): PassportView['withheld'] {
  const shown = new Set(fields.map(({ name }) => name));
  const hidden = [...new Set([version, model].flatMap((each) => Object.keys(each?.proof.fields ?? {})))]
    .filter((name) => !shown.has(name))
    .sort((a, b) => (order.get(a) ?? 999) - (order.get(b) ?? 999));
  return accessPoints
    .map((point) => ({ point, fields: hidden.filter((name) => fieldPoints.get(name) === point) }))
    .filter((each) => each.fields.length > 0);
}
