/*
 * The shapes that the compiler takes and gives. Everything that is hashed is plain JSON with integers only (canonical.ts);
 * a decimal is a `Quantity`: an integer, a scale and a unit.
 *
 * Artefacts (payload, proof, receipt) have snake_case keys: they leave the house as they are.
 */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
export type JsonObject = { readonly [key: string]: Json };

/** A SHA-256, 64 lower-case hex digits. */
export type Hash = string;

/** The points of Annex XIII: 1 public, 2 legitimate interest and authorities, 3 authorities, 4 legitimate interest, one battery. */
export type AccessPoint = 1 | 2 | 3 | 4;
export const accessPoints: readonly AccessPoint[] = [1, 2, 3, 4];

/**
 * Who reads. A lattice, not a ladder: neither of the two privileged readers sees all that the other sees. `owner` is who
 * issued the passport and has the documents anyway.
 */
export type Reader = 'public' | 'legitimate_interest' | 'authority' | 'owner';
export const readerPoints: Readonly<Record<Reader, readonly AccessPoint[]>> = {
  public: [1],
  legitimate_interest: [1, 2, 4],
  authority: [1, 2, 3],
  owner: [1, 2, 3, 4],
};

export type Category = 'ev' | 'lmt' | 'industrial' | 'stationary';
export const categories: readonly Category[] = ['ev', 'lmt', 'industrial', 'stationary'];

export type BatteryStatus = 'original' | 'repurposed' | 'reused' | 'remanufactured' | 'waste';
export const batteryStatuses: readonly BatteryStatus[] = [
  'original',
  'repurposed',
  'reused',
  'remanufactured',
  'waste',
];

/** A decimal in a unit: `value` ÷ 10^`scale`. 99.962 kWh is { value: 99962, scale: 3, unit: 'kWh' }. */
export interface QuantityJson {
  readonly value: number;
  readonly scale: number;
  readonly unit: string;
}

// Documents and facts ------------------------------------------------------------------------------------------------

export const documentKinds = [
  'bill_of_materials',
  'carbon_footprint',
  'due_diligence',
  'data_sheet',
] as const;
export type DocumentKind = (typeof documentKinds)[number];
export type DocumentFormat = 'csv' | 'json';

export interface DocumentInput {
  readonly kind: DocumentKind;
  readonly format: DocumentFormat;
  readonly bytes: Uint8Array;
}

/** Where a fact was read: rows count from 1, the header line of a CSV included; a JSON document counts its entries. */
export interface Source {
  readonly document: Hash;
  readonly row: number;
  readonly column: string;
}

export type FactType = 'material' | 'footprint_stage' | 'diligence' | 'attribute';
export const factTypes: readonly FactType[] = ['material', 'footprint_stage', 'diligence', 'attribute'];

export interface Fact {
  readonly type: FactType;
  readonly key: string;
  readonly schemaVersion: number;
  readonly payload: JsonObject;
  /** All of them, in the order of document, row and column. */
  readonly sources: readonly Source[];
}

/** What is wrong with a document, and where. `row` and `column` are missing only for what concerns the whole file. */
export interface DocumentProblem {
  readonly code: DocumentProblemCode;
  readonly row: number | null;
  readonly column: string | null;
  readonly message: string;
}

export type DocumentProblemCode =
  | 'TOO_LARGE'
  | 'TOO_MANY_ROWS'
  | 'TOO_MANY_COLUMNS'
  | 'WRONG_ENCODING'
  | 'NOT_READABLE'
  | 'EMPTY'
  | 'MISSING_COLUMN'
  | 'DOUBLED_COLUMN'
  | 'UNKNOWN_COLUMN'
  | 'MISSING_VALUE'
  | 'INVALID_VALUE'
  | 'DECIMAL_COMMA'
  | 'WRONG_UNIT'
  | 'CAS_CHECK_DIGIT'
  | 'DUPLICATE_KEY'
  | 'DUPLICATE_SERIAL';

/** Either facts or problems: a document with one problem gives no facts. */
export type ParsedDocument =
  | { readonly ok: true; readonly hash: Hash; readonly facts: readonly Fact[] }
  | { readonly ok: false; readonly hash: Hash; readonly problems: readonly DocumentProblem[] };

export interface DocumentLimits {
  readonly maxBytes: number;
  readonly maxRows: number;
  /** Parsing stops after so many problems. */
  readonly maxProblems: number;
}

export type ParsedItems =
  | { readonly ok: true; readonly hash: Hash; readonly items: readonly Item[] }
  | { readonly ok: false; readonly hash: Hash; readonly problems: readonly DocumentProblem[] };

/** `supersedes`: the older version of the same document. What is superseded gives no facts, also indirectly. */
export interface SnapshotDocument {
  readonly hash: Hash;
  readonly supersedes: Hash | null;
}

/** Facts sorted by type and key, one for each (type, key). */
export interface Snapshot {
  readonly hash: Hash;
  readonly facts: readonly Fact[];
}

// Rules --------------------------------------------------------------------------------------------------------------

export interface Rule {
  /** The name in the payload, and in other rules as `fields.<name>`. ASCII, a CEL identifier. */
  readonly field: string;
  /** CEL. */
  readonly expression: string;
  /** `string`, `bool`, `int`, a unit type (`Kg`, `KgCO2e_per_KWh`), `Material`, or `list<…>` of these. */
  readonly type: string;
  readonly point: AccessPoint;
  /** `model`: the same for all batteries of a model. `item`: this battery. */
  readonly granularity: 'model' | 'item';
  readonly categories: readonly Category[];
  /** YYYY-MM-DD: from this day on the law asks for the field. */
  readonly inForceFrom: string;
  /** What happens before that day: `publish` gives the value all the same if the facts are there. */
  readonly early: 'publish' | 'withhold';
  /** When a fact that the rule reads is missing: the compile fails (FACT_MISSING), or the field is `undetermined`. */
  readonly onMissing: 'fail' | 'undetermined';
  /** Which law: `Annex XIII 1(c)`. */
  readonly article: string;
  /** Said with `undetermined`, for readers: why the value may be missing. */
  readonly reason?: string;
}

export interface RuleTestCase {
  readonly name: string;
  readonly product: Product;
  readonly item: Item | null;
  readonly issuedAt: string;
  readonly facts: readonly Pick<Fact, 'type' | 'key' | 'payload'>[];
  /** Results that must come out, by field; fields not named are not compared. */
  readonly expect: { readonly [field: string]: FieldResult | { readonly error: string } };
}

export interface RulePackage {
  readonly id: string;
  readonly version: string;
  readonly rules: readonly Rule[];
  readonly testCases: readonly RuleTestCase[];
}

/** Lines and columns count from 1, `start` and `end` are offsets in the expression. */
export interface RulePosition {
  readonly line: number;
  readonly column: number;
  readonly start: number;
  readonly end: number;
}

export interface RuleProblem {
  readonly code:
    | 'RULE_PARSE_ERROR'
    | 'RULE_TYPE_ERROR'
    | 'UNIT_MISMATCH'
    | 'RULE_CYCLE_DETECTED'
    | 'VALIDATION_ERROR';
  /** The field of the rule; null for what concerns the package. */
  readonly rule: string | null;
  readonly position: RulePosition | null;
  readonly message: string;
  /** The circle of fields, first and last the same, for RULE_CYCLE_DETECTED. */
  readonly path?: readonly string[];
}

export type FieldResult =
  | { readonly status: 'value'; readonly value: Json }
  | { readonly status: 'not_yet_in_force'; readonly from: string; readonly article: string }
  | { readonly status: 'undetermined'; readonly reason: string }
  | { readonly status: 'out_of_scope'; readonly reason: string };

export interface TestCaseOutcome {
  readonly name: string;
  readonly passed: boolean;
  readonly differences: readonly {
    readonly field: string;
    readonly expected: Json;
    readonly actual: Json;
  }[];
}

// Compile ------------------------------------------------------------------------------------------------------------

/** The model. Everything in it is public (point 1). */
export interface Product {
  readonly id: string;
  readonly name: string;
  readonly category: Category;
  /** 14 digits with check digit. */
  readonly gtin: string;
  readonly manufacturer: string;
  readonly manufacturerId: string;
}

/** One battery. `status` is for readers of point 4, the rest is public. */
export interface Item {
  readonly serial: string;
  /** YYYY-MM. */
  readonly manufacturedOn: string;
  readonly manufacturedAt: string;
  readonly status: BatteryStatus;
}

export interface CompileLimits {
  readonly payloadBytes: number;
  readonly proofBytes: number;
  readonly receiptBytes: number;
}

export interface CompileInput {
  readonly passport: { readonly id: string; readonly version: string };
  readonly snapshot: Snapshot;
  readonly product: Product;
  /** null compiles the model: rules for items are then out of scope. */
  readonly item: Item | null;
  /**
   * The model's version that an item links to. With it only rules for items are compiled (and what they read); the
   * receipt names the model's receipt.
   */
  readonly model: { readonly version: string; readonly receipt_hash: Hash } | null;
  /** RFC 3339 in UTC with seconds: 2027-02-18T00:00:00Z. */
  readonly issuedAt: string;
  readonly build: string;
  readonly signingKey: string;
  /** 32 random bytes as hex, new for every version, secret. With it one can try candidates for withheld values. */
  readonly salt: string;
}

/** One sub-payload for each access point. */
export interface PayloadPart {
  readonly salt: string;
  readonly fields: { readonly [field: string]: FieldResult };
}

export interface Payload {
  readonly version: 'bpc-payload-1';
  readonly points: Readonly<Record<AccessPoint, PayloadPart>>;
}

/** What a reader gets: parts they may see, and hashes of the others. */
export interface RedactedPayload {
  readonly version: 'bpc-payload-1';
  readonly points: Readonly<Record<AccessPoint, PayloadPart | { readonly hash: Hash }>>;
}

/**
 * A step of a derivation. Its hash is the SHA-256 of its canonical JSON. `data.salt` differs for every node, so that the
 * hash of a node that a reader does not get tells nothing of what is in it.
 *
 *   field   data: field, point, expression, article, result; children: the expression
 *   expr    data: op, value; id: rule@start:end in the expression, or the name of a list
 *           (div: numerator and denominator, too)
 *           children: sub-expressions that were evaluated, elements in their order; literals have no nodes
 *   fact    data: fact_type, key, payload, sources [{document, row, column}]; `document` is a salted reference
 *   absent  data: fact_type, key               a fact that was asked for and is not there
 *   input   data: path, value                  of the product or the item
 */
export interface ProofNode {
  readonly id: string;
  readonly type: 'field' | 'expr' | 'fact' | 'absent' | 'input';
  readonly data: JsonObject;
  readonly children_hashes: readonly Hash[];
}

/**
 * Opens the reference to a document: SHA-256 of canonical {document, points, salt} is the reference. Only readers who may
 * see all facts of the document get it: others could try candidates for its withheld rows against the document's hash.
 */
export interface DocumentOpening {
  readonly reference: Hash;
  readonly document: Hash;
  /** The access points of all facts of the document. */
  readonly points: readonly AccessPoint[];
  readonly salt: string;
}

/** The proof's hash covers `fields`, which lead to all nodes. A redacted proof has fewer nodes and documents, same hash. */
export interface Proof {
  readonly version: 'bpc-proof-1';
  /** The hash of each field's node. */
  readonly fields: { readonly [field: string]: Hash };
  /** Sorted by hash, each once. */
  readonly nodes: readonly ProofNode[];
  readonly documents: readonly DocumentOpening[];
}

/** Public. Inputs that hold anything withheld are bound by salted commitments. */
export interface Receipt {
  readonly version: 'bpc-receipt-1';
  readonly passport_id: string;
  readonly passport_version: string;
  readonly product: { readonly id: string; readonly gtin: string };
  readonly serial: string | null;
  readonly model: { readonly version: string; readonly receipt_hash: Hash } | null;
  readonly issued_at: string;
  readonly build: string;
  readonly signing_key: string;
  readonly inputs: {
    readonly snapshot: Hash;
    readonly product: Hash;
    readonly item: Hash;
    readonly salt: Hash;
    readonly rules: { readonly id: string; readonly version: string; readonly hash: Hash };
  };
  readonly outputs: {
    readonly payload: Hash;
    readonly points: readonly [Hash, Hash, Hash, Hash];
    readonly proof: Hash;
  };
}

export interface Compiled {
  readonly payload: Payload;
  readonly proof: Proof;
  readonly receipt: Receipt;
  readonly payloadHash: Hash;
  readonly proofHash: Hash;
  readonly receiptHash: Hash;
  /** Canonical bytes, as stored. */
  readonly bytes: {
    readonly payload: Uint8Array;
    readonly proof: Uint8Array;
    readonly receipt: Uint8Array;
  };
}

// Verify -------------------------------------------------------------------------------------------------------------

/** The four values of a document code. */
export interface QrContent {
  readonly passportVersion: string;
  readonly payloadHash: Hash;
  readonly proofHash: Hash;
  readonly receiptHash: Hash;
}

export type VerifyPart =
  | 'qr'
  | 'receipt'
  | 'signature'
  | 'key'
  | 'payload'
  | 'proof'
  | 'rules'
  | 'snapshot'
  | 'documents';

/** What does not fit: which part, where in it, and a sentence. */
export interface Mismatch {
  readonly part: VerifyPart;
  readonly at: string;
  readonly message: string;
}

export interface VerifyInput {
  /** Anything may be missing; what is there is checked, alone and against the rest. Texts are parsed strictly. */
  readonly qr?: string;
  readonly receipt?: string;
  readonly signature?: Uint8Array;
  /** Raw 32-byte Ed25519 public keys by id. */
  readonly publicKeys?: Readonly<Record<string, Uint8Array>>;
  readonly payload?: string;
  readonly proof?: string;
  readonly rules?: string;
}

export interface Verified {
  readonly ok: boolean;
  /** What was compared and fits, in words: "payload, point 1, against the receipt". */
  readonly checked: readonly string[];
  readonly mismatches: readonly Mismatch[];
  /** Fields by what the reader got. */
  readonly fields: { readonly [field: string]: FieldResult };
}
