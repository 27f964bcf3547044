import { compareUtf8, hashJson } from './canonical.ts';
import { CompileError } from './errors.ts';
import { factHash, mergeFacts } from './facts.ts';
import type { Fact, Hash, Snapshot, SnapshotDocument, Source } from './types.ts';

/** SHA-256 over a version tag and the list of (type, key, payload hash), sorted by the UTF-8 bytes of type and key (BPC-5). */
export function snapshotHash(
  facts: readonly { readonly type: string; readonly key: string; readonly payloadHash: Hash }[],
): Hash {
  const sorted = [...facts].sort(byTypeAndKey);
  return hashJson(['bpc-snapshot-1', sorted.map(({ type, key, payloadHash }) => [type, key, payloadHash])]);
}

/**
 * One fact for each (type, key). A superseded document gives nothing, also not what its successor no longer says: a material
 * that is gone from the new bill of materials is gone. Two documents that contradict each other, neither of which supersedes
 * the other, raise DUPLICATE_FACT.
 */
export function buildSnapshot(facts: readonly Fact[], documents: readonly SnapshotDocument[]): Snapshot {
  const superseded = supersededBy(documents);
  const current = facts.flatMap((fact) => {
    const sources = fact.sources.filter(({ document }) => !superseded.has(document));
    return sources.length === 0 ? [] : [{ ...fact, sources }];
  });
  const sorted = [...mergeFacts(current)].sort(byTypeAndKey);
  for (const [at, fact] of sorted.entries()) {
    const before = sorted[at - 1];
    if (before && before.type === fact.type && before.key === fact.key) throw duplicate(before, fact);
  }
  const hash = snapshotHash(
    sorted.map((fact) => ({ type: fact.type, key: fact.key, payloadHash: factHash(fact) })),
  );
  return { hash, facts: sorted };
}

/** Every document that another one of the list replaces. A document that replaces itself, by any detour, is an error. */
function supersededBy(documents: readonly SnapshotDocument[]): ReadonlySet<Hash> {
  const next = new Map(documents.map(({ hash, supersedes }) => [hash, supersedes]));
  const superseded = new Set<Hash>();
  for (const { hash, supersedes } of documents) {
    const seen = new Set([hash]);
    for (let older = supersedes; older !== null; older = next.get(older) ?? null) {
      if (seen.has(older))
        throw new CompileError('VALIDATION_ERROR', `document ${older} supersedes itself, by way of ${hash}`, {
          document: older,
        });
      seen.add(older);
      superseded.add(older);
    }
  }
  return superseded;
}

const byTypeAndKey = (
  a: { readonly type: string; readonly key: string },
  b: { readonly type: string; readonly key: string },
): number => compareUtf8(a.type, b.type) || compareUtf8(a.key, b.key);

function duplicate(first: Fact, second: Fact): CompileError {
  const [a, b] = [first.sources[0], second.sources[0]];
  return new CompileError(
    'DUPLICATE_FACT',
    `two documents give ${first.type} "${first.key}" differently: ${place(a)} and ${place(b)}. ` +
      'Correct one of them, or upload the newer one as superseding the older',
    { factType: first.type, factKey: first.key, sources: [first.sources, second.sources] },
  );
}

const place = (source: Source | undefined): string =>
  source
    ? `document ${source.document}, row ${source.row}, column "${source.column}"`
    : 'an unknown document';
