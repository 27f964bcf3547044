import { canonicalAscii, compareUtf8, hashJson } from './canonical.ts';
import { CompileError } from './errors.ts';
import { accessOfFact } from './facts.ts';
import { bytesToHex, concat, sha256, sha256Hex, utf8 } from './hash.ts';
import type {
  AccessPoint,
  DocumentOpening,
  FactType,
  Hash,
  Json,
  JsonObject,
  Proof,
  ProofNode,
} from './types.ts';

/*
 * The proof (BPC-8): a graph of derivation nodes, each known by its hash, each there once.
 *
 * It is published by field, and only branches whose facts the reader may see (BPC-12). What is left out is still named by
 * its hash in the node above it, so every node has a salt of its own: without it the hash of "hazardous: yes" would
 * give away the answer to anybody who tries both. The salt depends on the node's content and on a secret key, so that equal
 * nodes stay one node, and a node that one may see tells nothing of the salts of others.
 *
 * Which nodes a reader gets:
 *   field         if the reader may see the field's access point: its value is published there
 *   fact, absent  by the fact's access point;  input: product and item by theirs
 *   expr          if the reader may see everything that it was computed from
 * Below a node that is left out nothing is shown. A public field that is computed from facts that are not public shows its
 * value and its rule, and no derivation.
 */

export const nodeHash = (node: ProofNode): Hash => hashJson(node as unknown as Json);

/** Covers the nodes of all fields, and with them all nodes. The same for a proof and every redaction of it. */
export const proofHash = ({ version, fields }: Proof): Hash => hashJson({ version, fields });

const saltBytes = 16;

/**
 * What may be built for a proof of a size, before it is known which nodes are in it: those of rules that failed for a missing fact
 * are not, and a node that is made again is there once. Each is hashed, so that a proof which is far too large stops early.
 */
const buildable = { bytesPerByte: 16, nodesPerByte: 1, leastBytes: 256 * 1024 };

export class ProofBuilder {
  readonly #key: Uint8Array;
  readonly #proofBytes: number;
  #nodesLeft: number;
  #bytesLeft: number;
  readonly #hashes = new Map<string, Hash>();
  readonly #nodes = new Map<Hash, ProofNode>();
  readonly #texts = new Map<Hash, string>();

  constructor(key: Uint8Array, proofBytes: number) {
    this.#key = key;
    this.#proofBytes = proofBytes;
    const bytes = Math.max(proofBytes, buildable.leastBytes);
    this.#nodesLeft = bytes * buildable.nodesPerByte;
    this.#bytesLeft = bytes * buildable.bytesPerByte;
  }

  add(type: ProofNode['type'], id: string, data: JsonObject, children: readonly Hash[]): Hash {
    if (--this.#nodesLeft < 0 || this.#bytesLeft < 0) throw this.#tooLarge();
    const [head, tail] = textAround({ id, type, children_hashes: children });
    const members = membersOf(data);
    const digest = sha256(concat(this.#key, utf8(head + joined(members) + tail)));
    const salt = bytesToHex(digest.subarray(0, saltBytes));
    const known = this.#hashes.get(salt);
    if (known !== undefined) return known;
    const text = head + joined([...members, ['salt', `"salt":"${salt}"`]]) + tail;
    const hash = sha256Hex(utf8(text));
    this.#bytesLeft -= text.length;
    this.#hashes.set(salt, hash);
    this.#texts.set(hash, text);
    this.#nodes.set(hash, { id, type, data: { ...data, salt }, children_hashes: children });
    return hash;
  }

  #tooLarge(): CompileError {
    const limit = this.#proofBytes;
    return new CompileError(
      'PROOF_TOO_LARGE',
      `the proof would be far larger than the ${limit} bytes that are allowed: rules read too many facts, or go through them too often. ` +
        'Simplify them, or raise the limit',
      { limit },
    );
  }

  /** Nodes that no field leads to are left out: parts of rules that failed for a missing fact. */
  build(
    fields: Readonly<Record<string, Hash>>,
    documents: readonly DocumentOpening[],
  ): { readonly proof: Proof; readonly text: string } {
    const proof = select(
      { version: 'bpc-proof-1', fields, nodes: [], documents },
      this.#nodes,
      () => true,
      () => true,
    );
    return { proof, text: this.#textOf(proof) };
  }

  /** The proof's canonical text. The texts of its nodes are there already: each was hashed. */
  #textOf({ version, fields, nodes, documents }: Proof): string {
    const texts = nodes.map((node) => this.#texts.get(this.#hashes.get(String(node.data.salt)) ?? '') ?? '');
    const [opened, named] = [canonicalAscii(documents as unknown as Json), canonicalAscii(fields)];
    return `{"documents":${opened},"fields":${named},"nodes":[${texts.join(',')}],"version":"${version}"}`;
  }
}

/** The canonical text of a node before and after its data. */
function textAround({
  id,
  type,
  children_hashes: children,
}: Omit<ProofNode, 'data'>): readonly [string, string] {
  const hashes = children.length === 0 ? '' : `"${children.join('","')}"`;
  return [`{"children_hashes":[${hashes}],"data":{`, `},"id":${canonicalAscii(id)},"type":"${type}"}`];
}

const membersOf = (data: JsonObject): readonly (readonly [string, string])[] =>
  Object.entries(data).map(([key, value]) => [key, `${canonicalAscii(key)}:${canonicalAscii(value)}`]);

const joined = (members: readonly (readonly [string, string])[]): string =>
  [...members]
    .sort(([a], [b]) => compareUtf8(a, b))
    .map(([, text]) => text)
    .join(',');

/** What a reader of these access points may see. */
export function redactProof(proof: Proof, points: readonly AccessPoint[]): Proof {
  const nodes = new Map(proof.nodes.map((node) => [nodeHash(node), node]));
  const seen = new Map<Hash, boolean>();
  const isVisible = (hash: Hash): boolean => {
    const known = seen.get(hash);
    if (known !== undefined) return known;
    const node = nodes.get(hash);
    const visible = node !== undefined && mayRead(node, points, isVisible);
    seen.set(hash, visible);
    return visible;
  };
  return select(proof, nodes, isVisible, (opening) =>
    opening.points.every((point) => points.includes(point)),
  );
}

function mayRead(
  { type, data, children_hashes: children }: ProofNode,
  points: readonly AccessPoint[],
  isVisible: (hash: Hash) => boolean,
): boolean {
  if (type === 'expr') return children.every(isVisible);
  return points.some((point) => point === pointOf(type, data));
}

function pointOf(type: ProofNode['type'], data: JsonObject): unknown {
  if (type === 'field') return data.point;
  if (type === 'input') return inputPoint(String(data.path));
  if (data.key === '*') return data.fact_type === 'material' ? 2 : 1;
  return accessOfFact(data.fact_type as FactType, String(data.key));
}

/** Of product and item only the battery's status is not public. */
export const inputPoint = (path: string): AccessPoint => (path === 'item.status' ? 4 : 1);

function select(
  { version, fields, documents }: Proof,
  all: ReadonlyMap<Hash, ProofNode>,
  isVisible: (hash: Hash) => boolean,
  mayOpen: (opening: DocumentOpening) => boolean,
): Proof {
  const chosen = new Map<Hash, ProofNode>();
  const pending = Object.values(fields);
  for (let hash = pending.pop(); hash !== undefined; hash = pending.pop()) {
    const node = chosen.has(hash) ? undefined : all.get(hash);
    if (!node || !isVisible(hash)) continue;
    chosen.set(hash, node);
    for (const child of node.children_hashes) pending.push(child);
  }
  const named = new Set([...chosen.values()].flatMap(referencesOf));
  return {
    version,
    fields,
    nodes: [...chosen].sort(([a], [b]) => compareUtf8(a, b)).map(([, node]) => node),
    documents: documents.filter((opening) => named.has(opening.reference) && mayOpen(opening)),
  };
}

/** The references to documents that a node has. */
export function referencesOf({ type, data }: ProofNode): readonly Hash[] {
  if (type !== 'fact' || !Array.isArray(data.sources)) return [];
  return (data.sources as readonly { readonly document: Hash }[]).map(({ document }) => document);
}

export const documentReference = ({ document, points, salt }: Omit<DocumentOpening, 'reference'>): Hash =>
  hashJson({ document, points, salt });
