/** The sample battery, with as many materials and items as a workload asks for. */
import { hash } from 'node:crypto';
import { parseDocument } from '../../../src/apps/passports/compile/documents/parse.ts';
import { setSha256 } from '../../../src/apps/passports/compile/hash.ts';
import { documents, items, product, rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { buildSnapshot } from '../../../src/apps/passports/compile/snapshot.ts';
import type {
  CompileLimits,
  DocumentInput,
  Item,
  Snapshot,
} from '../../../src/apps/passports/compile/types.ts';
import { type Means, meansWith } from '../../../src/apps/passports/means.ts';
import { keyRing } from '../../../src/apps/passports/signing/keys.ts';

export { product, rulePackage };
export const issuedAt = new Date('2027-02-18T00:00:00Z');

/** Ten times the facts give a proof ten times as large: the default limits are for one battery. */
const limits: CompileLimits = { payloadBytes: 4 << 20, proofBytes: 8 << 20, receiptBytes: 16 << 10 };

export const benchMeans = (): Means =>
  meansWith({
    keys: keyRing({
      'passports.signingKey': Buffer.alloc(32, 7).toString('base64'),
      'passports.signingKeyId': 'bench-1',
      'passports.publicKeys': null,
    }),
    build: 'bench',
    limits,
  });

export const itemsOf = (count: number): readonly Item[] =>
  Array.from({ length: count }, (_, n) => ({
    ...(items[0] as Item),
    serial: `B${String(n + 1).padStart(8, '0')}`,
  }));

export const documentsOf = (
  factor: number,
): readonly { readonly name: string; readonly input: DocumentInput }[] =>
  documents.map(({ name, input }) =>
    input.kind === 'bill_of_materials'
      ? { name, input: { ...input, bytes: repeated(input.bytes, factor) } }
      : { name, input },
  );

function repeated(bytes: Uint8Array, factor: number): Uint8Array {
  const [header = '', ...rows] = new TextDecoder().decode(bytes).trimEnd().split('\n');
  const all = Array.from({ length: factor }, (_, n) =>
    rows.map((row) => (n === 0 ? row : row.replace(/^([^,]+,[^,]+)/, `$1 ${n}`))),
  ).flat();
  return new TextEncoder().encode([header, ...all, ''].join('\n'));
}

export function snapshotOf(factor: number): Snapshot {
  setSha256((bytes) => hash('sha256', bytes, 'buffer'));
  const facts = documentsOf(factor).flatMap(({ name, input }) => {
    const parsed = parseDocument(input);
    if (!parsed.ok) throw new Error(`${name}: ${parsed.problems[0]?.message}`);
    return parsed.facts;
  });
  return buildSnapshot(facts, []);
}
