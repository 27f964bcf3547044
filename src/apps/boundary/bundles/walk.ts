/**
 * Goes through a bundle once and checks everything about it: order of entries, dense offsets, chain hashes, records, bytes of
 * objects, and in the end the manifest with its signature. Holds one chunk of facts in memory, and of an object a part.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { messageOf } from '../../../engine/errors.ts';
import {
  checkDelivery,
  type DeliveredEntry,
  type Delivery,
  type DroppedRange,
  type Frontier,
  passDropped,
} from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import { BundleFile } from './file.ts';
import {
  BadBundle,
  type BundleHeader,
  type BundleKind,
  type BundleManifest,
  bundleFormat,
  isManifestGenuine,
  type KeyOf,
  names,
  signerOf,
  sizes,
  unknownKey,
} from './format.ts';

/** Facts that lie together, with what they follow. */
export interface Chunk {
  readonly delivery: Delivery;
  readonly first: number;
  /** How far the stream has come with it. */
  readonly end: Frontier;
  /** The objects that it has, by digest, under all names that its facts have for them. */
  readonly objects: ReadonlyMap<string, readonly ObjectReference[]>;
  /** By offset: why the object of a fact is not in the bundle. */
  readonly lost: ReadonlyMap<number, string>;
}

export interface Visitor {
  /** Before anything of the manifest is known. Throw to go no further. */
  header?(header: BundleHeader): Promise<void>;
  /** Reads the bytes of an object, or leaves them. */
  object?(chunk: Chunk, digest: string, size: number, bytes: AsyncIterable<Uint8Array>): Promise<void>;
  /** After all objects of the chunk. */
  chunk?(chunk: Chunk): Promise<void>;
  receipts?(items: readonly unknown[]): Promise<void>;
  quarantined?(items: readonly unknown[]): Promise<void>;
}

const offset = z.int().min(0);
const hex = z.string().regex(/^[0-9a-f]{64}$/);
const headerFields = {
  format: z.literal(bundleFormat),
  kind: z.enum(['facts', 'receipts']),
  tenantId: z.string(),
  from: z.string(),
  to: z.string(),
  epoch: z.uuid(),
  firstOffset: z.int().min(1),
  chainBefore: z.union([hex, z.literal('')]),
  createdAt: z.int().min(0),
};
const headerSchema = z.strictObject(headerFields);
const manifestSchema = z.strictObject({
  ...headerFields,
  lastOffset: offset,
  chain: hex,
  sha256: hex,
  keyId: z.string(),
  signature: z.base64(),
});
const factSchema = z.strictObject({
  offset,
  key: z.string(),
  digest: hex,
  chain: hex,
  record: z.string(),
  objectLost: z.string().optional(),
});
const droppedSchema = z.strictObject({ droppedFrom: offset, droppedTo: offset, chain: hex });
const lineSchema = z.union([factSchema, droppedSchema]);

/** What the first entry says. Nothing of it is verified: it helps to decide what to do with the file. */
export async function peekBundle(path: string): Promise<BundleHeader> {
  const file = await BundleFile.open(path);
  try {
    return await readHeader(file);
  } finally {
    await file.close();
  }
}

/** Throws `BadBundle` with the place if anything is not as it was written, and `unknownKey` if that cannot be known. */
export async function walkBundle(
  path: string,
  { kind, keyOf }: { readonly kind: BundleKind; readonly keyOf: KeyOf },
  visitor: Visitor,
): Promise<BundleManifest> {
  const file = await BundleFile.open(path);
  try {
    const header = await readHeader(file);
    if (header.kind !== kind)
      throw new BadBundle(names.header, `it is a bundle of ${header.kind}; one of ${kind} is expected`);
    await visitor.header?.(header);
    const end = kind === 'facts' ? await walkFacts(file, header, visitor) : await walkReceipts(file, visitor);
    const manifest = await readManifest(file, header, end, keyOf);
    if (await file.next()) throw new BadBundle(file.place, 'something follows the manifest');
    await file.requireEnd();
    return manifest;
  } finally {
    await file.close();
  }
}

async function readHeader(file: BundleFile): Promise<BundleHeader> {
  const entry = await file.next();
  if (entry?.name !== names.header) throw new BadBundle(file.place, `a bundle begins with ${names.header}`);
  return parsed(headerSchema, await file.whole(sizes.mostOfJson), names.header);
}

/** Ends at the manifest's entry. */
async function walkFacts(file: BundleFile, header: BundleHeader, visitor: Visitor): Promise<Frontier> {
  const { epoch, firstOffset, chainBefore } = header;
  let reached: Frontier = { epoch, offset: firstOffset - 1, chain: chainBefore };
  for (;;) {
    const entry = await file.next();
    if (entry?.name === names.manifest) return reached;
    const expected = names.facts(reached.offset + 1);
    if (entry?.name !== expected) throw unexpected(file, entry?.name, `${expected} or ${names.manifest}`);
    const chunk = chunkOf(await file.whole(sizes.mostOfAChunk), expected, reached, header);
    for (const digest of chunk.objects.keys()) await walkObject(file, chunk, digest, visitor);
    await visitor.chunk?.(chunk);
    reached = chunk.end;
  }
}

async function walkObject(file: BundleFile, chunk: Chunk, digest: string, visitor: Visitor): Promise<void> {
  const expected = names.object(chunk.first, digest);
  const entry = await file.next();
  if (entry?.name !== expected) throw unexpected(file, entry?.name, expected);
  const sum = createHash('sha256');
  async function* bytes(): AsyncGenerator<Uint8Array> {
    for await (const part of file.rest()) {
      sum.update(part);
      yield part;
    }
  }
  await visitor.object?.(chunk, digest, entry.size, bytes());
  for await (const part of file.rest()) sum.update(part);
  if (`sha256:${sum.digest('hex')}` !== digest)
    throw new BadBundle(expected, 'the bytes of this object do not have its digest');
}

/** Ends at the manifest's entry, which says the rest. */
async function walkReceipts(file: BundleFile, visitor: Visitor): Promise<undefined> {
  let receipts = 0;
  let quarantined = 0;
  for (;;) {
    const entry = await file.next();
    if (entry?.name === names.manifest) return undefined;
    const name = entry?.name;
    const isReceipts = name === names.receipts(receipts + 1);
    if (!isReceipts && name !== names.quarantined(quarantined + 1))
      throw unexpected(file, name, `${names.receipts(receipts + 1)} or ${names.manifest}`);
    const items = linesIn(await file.whole(sizes.mostOfAChunk)).map((line, i) =>
      parsedJson(line, `${name}, line ${i + 1}`),
    );
    if (isReceipts) {
      receipts += 1;
      await visitor.receipts?.(items);
    } else {
      quarantined += 1;
      await visitor.quarantined?.(items);
    }
  }
}

async function readManifest(
  file: BundleFile,
  header: BundleHeader,
  end: Frontier | undefined,
  keyOf: KeyOf,
): Promise<BundleManifest> {
  const { digestBefore } = file;
  const manifest = parsed(manifestSchema, await file.whole(sizes.mostOfJson), names.manifest);
  const signer = signerOf(manifest);
  const key = keyOf(signer, manifest.keyId);
  if (key && !isManifestGenuine(manifest, key))
    throw new BadBundle(
      names.manifest,
      `it is not signed by the key "${manifest.keyId}" that is known here for the zone that wrote it, or was changed`,
    );
  for (const [field, value] of Object.entries(header))
    if (manifest[field as keyof BundleHeader] !== value)
      throw new BadBundle(names.header, `its ${field} is not the one that was signed`);
  if (end && (end.offset !== manifest.lastOffset || end.chain !== manifest.chain))
    throw new BadBundle(
      names.manifest,
      `it is for facts up to offset ${manifest.lastOffset}, and the file ends with ${end.offset} or with other facts`,
    );
  if (manifest.sha256 !== digestBefore)
    throw new BadBundle(names.manifest, 'the bytes before it are not those that were signed');
  // Last: without the key, what was checked so far tells a damaged file from one that only waits for the key.
  if (!key) throw unknownKey(signer, manifest.keyId);
  return manifest;
}

function chunkOf(bytes: Buffer, name: string, reached: Frontier, header: BundleHeader): Chunk {
  const dropped: DroppedRange[] = [];
  const entries: DeliveredEntry[] = [];
  const lost = new Map<number, string>();
  for (const [i, text] of linesIn(bytes).entries()) {
    const line = checked(lineSchema, parsedJson(text, `${name}, line ${i + 1}`), `${name}, line ${i + 1}`);
    if ('record' in line) {
      const { offset: at, key, digest, chain, record } = line;
      entries.push({ offset: at, key, digest, chain, text: record });
      if (line.objectLost) lost.set(at, line.objectLost);
    } else dropped.push({ from: line.droppedFrom, to: line.droppedTo, chain: line.chain });
  }
  const delivery: Delivery = {
    epoch: header.epoch,
    dropped,
    chainBefore: dropped.at(-1)?.chain ?? reached.chain,
    entries,
  };
  try {
    const passed = passDropped(reached, delivery, header).frontier;
    const objects = new Map<string, ObjectReference[]>();
    const facts = checkDelivery(passed, delivery, header);
    for (const { record, offset: at } of facts)
      if (record.reference && !lost.has(at)) {
        const { digest } = record.reference;
        objects.set(digest, [...(objects.get(digest) ?? []), record.reference]);
      }
    const last = facts.at(-1) ?? passed;
    if (last.offset === reached.offset) throw new Error('it has no facts');
    const end = { epoch: header.epoch, offset: last.offset, chain: last.chain };
    return { delivery, first: reached.offset + 1, end, objects, lost };
  } catch (error) {
    // The file is sound: this node is too old for it.
    if (error instanceof BoundaryError && error.reason === 'unknown_version') throw error;
    throw new BadBundle(name, messageOf(error), error);
  }
}

const linesIn = (bytes: Buffer): string[] => bytes.toString('utf8').split('\n').slice(0, -1);

const unexpected = (file: BundleFile, name: string | undefined, expected: string): BadBundle =>
  new BadBundle(file.place, `${name ?? 'the end of the archive'} comes here, and ${expected} is expected`);

function parsedJson(text: string, place: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BadBundle(place, messageOf(error), error);
  }
}

function checked<T>(schema: z.ZodType<T>, value: unknown, place: string): T {
  const result = schema.safeParse(value);
  if (!result.success) throw new BadBundle(place, z.prettifyError(result.error));
  return result.data;
}

const parsed = <T>(schema: z.ZodType<T>, bytes: Buffer, place: string): T =>
  checked(schema, parsedJson(bytes.toString('utf8'), place), place);
