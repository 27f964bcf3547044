import { canonical } from './canonical.ts';
import { documentReference, nodeHash, referencesOf } from './proof.ts';
import {
  accessPoints,
  type Hash,
  type Json,
  type Mismatch,
  type Proof,
  type ProofNode,
  type RedactedPayload,
} from './types.ts';

/** Every node is reached from a field, once, in its place; every document opens a reference that a node has. */
export function checkProof(proof: Proof): readonly Mismatch[] {
  const mismatches: Mismatch[] = [];
  const say = (at: string, message: string): void => {
    mismatches.push({ part: 'proof', at, message });
  };
  const nodes = new Map<Hash, ProofNode>();
  const hashes = proof.nodes.map(nodeHash);
  for (const [at, node] of proof.nodes.entries()) nodes.set(hashes[at] ?? '', node);
  const reached = new Set<Hash>();
  const pending = Object.values(proof.fields);
  for (let hash = pending.pop(); hash !== undefined; hash = pending.pop()) {
    const node = nodes.get(hash);
    if (!node || reached.has(hash)) continue;
    reached.add(hash);
    for (const child of node.children_hashes) pending.push(child);
  }
  for (const [at, hash] of hashes.entries())
    if (!reached.has(hash))
      say(
        `/nodes/${at}`,
        `the node "${nodes.get(hash)?.id}" is not part of the derivation of any field: it was changed or added`,
      );
    else if (hash <= (hashes[at - 1] ?? '') && reached.has(hashes[at - 1] ?? ''))
      say(`/nodes/${at}`, 'is there twice, or not in the order of hashes');
  for (const [field, hash] of Object.entries(proof.fields)) {
    const node = nodes.get(hash);
    if (node && (node.type !== 'field' || node.data.field !== field))
      say(`/fields/${field}`, `leads to the node "${node.id}", which is that of something else`);
  }
  const named = new Set([...nodes.values()].flatMap(referencesOf));
  for (const [at, opening] of proof.documents.entries()) {
    if (opening.reference !== documentReference(opening))
      say(
        `/documents/${at}`,
        `does not open its reference: document, points or salt of ${opening.document} was changed`,
      );
    else if (!named.has(opening.reference)) say(`/documents/${at}`, 'no node names this document');
  }
  return mismatches;
}

/** What the payload says is what the derivation gave. */
export function checkFields(payload: RedactedPayload, proof: Proof): readonly Mismatch[] {
  const nodes = new Map(proof.nodes.map((node) => [nodeHash(node), node]));
  return accessPoints.flatMap((point) => {
    const part = payload.points[point];
    return Object.entries('hash' in part ? {} : part.fields).flatMap(
      ([field, result]): readonly Mismatch[] => {
        const at = `/points/${point}/fields/${field}`;
        const hash = Object.hasOwn(proof.fields, field) ? proof.fields[field] : undefined;
        if (hash === undefined) return [{ part: 'payload', at, message: 'the proof has no such field' }];
        const node = nodes.get(hash);
        if (!node)
          return [
            {
              part: 'proof',
              at: `/fields/${field}`,
              message: 'the node of this field is missing or was changed',
            },
          ];
        if (node.data.point === point && canonical(node.data.result as Json) === canonical(result as Json))
          return [];
        return [{ part: 'payload', at, message: 'says something else than its derivation' }];
      },
    );
  });
}
