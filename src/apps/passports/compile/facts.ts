import { attributeNamed } from './attributes.ts';
import { canonical, compareUtf8, hashJson } from './canonical.ts';
import { CompileError } from './errors.ts';
import type { AccessPoint, Fact, FactType, Hash, Source } from './types.ts';

/** Part of a fact's identity: a parser that reads a document differently writes another version. */
export const factSchemaVersion = 1;

/** The hash of the payload: with type, key and schema version it is the identity of a fact (BPC-3). */
export const factHash = (fact: Pick<Fact, 'payload'>): Hash => hashJson(fact.payload);

/**
 * Who may see a fact. The composition is for point 2; footprint and due diligence are public; an attribute has the point of
 * the field that it is for. A public field may still be computed from facts that are not: then its value is public, and the
 * way to it is not.
 */
export function accessOfFact(type: FactType, key: string): AccessPoint {
  if (type === 'material') return 2;
  if (type === 'footprint_stage' || type === 'diligence') return 1;
  const attribute = attributeNamed(key);
  if (attribute) return attribute.point;
  throw new CompileError('VALIDATION_ERROR', `there is no attribute "${key}"; see the list of attributes`, {
    key,
  });
}

/** Facts that differ in their sources only become one fact with all sources. */
export function mergeFacts(facts: readonly Fact[]): readonly Fact[] {
  const merged = new Map<string, { readonly fact: Fact; readonly sources: Map<string, Source> }>();
  for (const fact of facts) {
    const identity = canonical([fact.type, fact.key, fact.schemaVersion, factHash(fact)]);
    const entry = merged.get(identity) ?? { fact, sources: new Map<string, Source>() };
    for (const { document, row, column } of fact.sources)
      entry.sources.set(canonical([document, row, column]), { document, row, column });
    merged.set(identity, entry);
  }
  return [...merged.values()].map(({ fact, sources }) => ({
    ...fact,
    sources: [...sources.values()].sort(compareSources),
  }));
}

const compareSources = (a: Source, b: Source): number =>
  compareUtf8(a.document, b.document) || a.row - b.row || compareUtf8(a.column, b.column);
