import type { Hash, Json, Proof, ProofNode } from '../compile/index.ts';
import { nodeHash } from '../compile/proof.ts';
import type { DisclosedVersion } from './disclosure.ts';

/*
 * "How was this number made": the proof of a field as a small tree. A proof is a graph: what is used twice is shown in full
 * once, and another field is named, not repeated. Conditions inside filters are left out; the proof has them.
 */

export type Step =
  | {
      readonly kind: 'expression';
      readonly text: string;
      readonly value: Json;
      readonly division: { readonly numerator: string; readonly denominator: string } | null;
      readonly steps: readonly Step[];
      /** Shown in full before. */
      readonly isRepeated: boolean;
    }
  | { readonly kind: 'field'; readonly field: string; readonly value: Json | null }
  | {
      readonly kind: 'fact';
      readonly key: string;
      readonly value: Json;
      /** `document` is null where the reader may not know which document it is. */
      readonly sources: readonly {
        readonly document: Hash | null;
        readonly row: number;
        readonly column: string;
      }[];
    }
  | { readonly kind: 'absent'; readonly key: string }
  | { readonly kind: 'input'; readonly path: string; readonly value: Json };

export interface Derivation {
  readonly expression: string;
  readonly article: string;
  /** null: computed from facts that the reader may not see. */
  readonly steps: readonly Step[] | null;
}

/** Draws derivations out of one version's proof. */
export class Derivations {
  readonly #proof: Proof;
  readonly #nodes: ReadonlyMap<Hash, ProofNode>;
  readonly #documents: ReadonlyMap<Hash, Hash>;

  constructor({ proof }: DisclosedVersion) {
    this.#proof = proof;
    this.#nodes = new Map(proof.nodes.map((node) => [nodeHash(node), node]));
    this.#documents = new Map(proof.documents.map(({ reference, document }) => [reference, document]));
  }

  /** Undefined if the proof has no such field, or not for this reader. */
  of(field: string): Derivation | undefined {
    const hash = Object.hasOwn(this.#proof.fields, field) ? this.#proof.fields[field] : undefined;
    const node = hash === undefined ? undefined : this.#nodes.get(hash);
    if (node?.type !== 'field') return undefined;
    const expression = String(node.data.expression);
    const isComplete = node.children_hashes.every((child) => this.#nodes.has(child));
    return {
      expression,
      article: String(node.data.article),
      steps: isComplete ? this.#steps(node.children_hashes, expression, new Set()) : null,
    };
  }

  #steps(hashes: readonly Hash[], expression: string, shown: Set<Hash>): readonly Step[] {
    return hashes.flatMap((hash) => {
      const node = this.#nodes.get(hash);
      return node && !isCondition(node) ? [this.#step(hash, node, expression, shown)] : [];
    });
  }

  #step(
    hash: Hash,
    { id, type, data, children_hashes }: ProofNode,
    expression: string,
    shown: Set<Hash>,
  ): Step {
    switch (type) {
      case 'field': {
        const result = data.result as { readonly value?: Json };
        return { kind: 'field', field: String(data.field), value: result.value ?? null };
      }
      case 'fact':
        return {
          kind: 'fact',
          key: String(data.key),
          value: factValue(data.payload as { readonly [column: string]: Json }),
          sources: (data.sources as readonly { document: Hash; row: number; column: string }[]).map(
            ({ document, row, column }) => ({ document: this.#documents.get(document) ?? null, row, column }),
          ),
        };
      case 'absent':
        return { kind: 'absent', key: String(data.key) };
      case 'input':
        return { kind: 'input', path: String(data.path), value: data.value ?? null };
      case 'expr': {
        const isRepeated = shown.has(hash) && children_hashes.length > 0;
        shown.add(hash);
        return {
          kind: 'expression',
          text: textOf(id, expression),
          value: data.value ?? null,
          division:
            data.numerator === undefined
              ? null
              : { numerator: String(data.numerator), denominator: String(data.denominator) },
          steps: isRepeated ? [] : this.#steps(children_hashes, expression, shown),
          isRepeated,
        };
      }
    }
  }
}

const isCondition = ({ type, data }: ProofNode): boolean =>
  type === 'expr' && typeof data.value === 'boolean';

/** A node is named by its place in the rule's text (`mass@4:21`), or by the list that it is. */
function textOf(id: string, expression: string): string {
  const [, start, end] = /@(\d+):(\d+)$/.exec(id) ?? [];
  return start === undefined ? id : expression.slice(Number(start), Number(end));
}

const factValue = (payload: { readonly [column: string]: Json }): Json =>
  Object.keys(payload).length === 1 && payload.value !== undefined ? payload.value : payload;
