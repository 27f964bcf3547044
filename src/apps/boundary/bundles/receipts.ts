/** The way back: a bundle of receipts, which the sender imports to know what has arrived. */
import { z } from 'zod';
import { leaseMs } from '../consume.ts';
import { streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import { isSignedBy, type ReceiptKey, type SignedReceipt } from '../domain/receipt.ts';
import { chainAt, keepQuarantined, peerConsumer, type Refused, requireSamePast } from '../handoff/source.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import { BadBundle, type BundleManifest, bundleFormat, type KeyOf, linesOf, names } from './format.ts';
import { walkBundle } from './walk.ts';
import { BundleWriter } from './write.ts';

const page = 500;

export interface ExportReceiptsOptions {
  readonly store: FactStore;
  /** A forward buffer of this node. */
  readonly stream: StreamId;
  /** The key that this zone signs receipts with. */
  readonly key: ReceiptKey;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

/** All receipts of the source's present epoch after an offset, and what is in quarantine. Undefined: nothing was received yet. */
export async function exportReceipts(
  { store, stream, key, now = Date.now }: ExportReceiptsOptions,
  path: string,
  { after = 0 }: { readonly after?: number } = {},
): Promise<BundleManifest | undefined> {
  const frontier = await store.frontier(stream);
  if (!frontier) return undefined;
  const { tenantId, from, to } = stream;
  const writer = await BundleWriter.create(path, {
    format: bundleFormat,
    kind: 'receipts',
    tenantId,
    from,
    to,
    epoch: frontier.epoch,
    firstOffset: after + 1,
    chainBefore: '',
    createdAt: now(),
  });
  const isCovered = ({ epoch, last }: { readonly epoch: string; readonly last: number }): boolean =>
    epoch === frontier.epoch && last <= frontier.offset;
  try {
    let n = 0;
    for await (const receipts of pages(
      (at) => store.receipts(stream, at),
      after,
      (each) => each.toOffset,
    )) {
      n += 1;
      const covered = receipts.filter(({ epoch, toOffset }) => isCovered({ epoch, last: toOffset }));
      await writer.add(names.receipts(n), linesOf(covered.map(receiptLine)));
    }
    n = 0;
    for await (const kept of pages(
      (at) => store.quarantined(stream, at),
      after,
      (each) => each.offset,
    )) {
      n += 1;
      const covered = kept.filter(({ epoch, offset }) => isCovered({ epoch, last: offset }));
      await writer.add(
        names.quarantined(n),
        linesOf(covered.map(({ offset, reason, message }) => ({ offset, reason, message }))),
      );
    }
    return await writer.finish({ lastOffset: frontier.offset, chain: frontier.chain }, key);
  } catch (error) {
    await writer.abandon();
    throw error;
  }
}

async function* pages<T>(
  read: (options: { readonly after: number; readonly limit: number }) => Promise<T[]>,
  start: number,
  offsetOf: (item: T) => number,
): AsyncGenerator<T[]> {
  for (let after = start; ; ) {
    const items = await read({ after, limit: page });
    const last = items.at(-1);
    if (!last) return;
    yield items;
    after = offsetOf(last);
  }
}

const receiptLine = ({ fromOffset, toOffset, chain, receivedAt, keyId, signature }: SignedReceipt) => ({
  fromOffset,
  toOffset,
  chain,
  receivedAt,
  keyId,
  signature: Buffer.from(signature).toString('base64'),
});

const receiptSchema = z.strictObject({
  fromOffset: z.int().min(1),
  toOffset: z.int().min(1),
  chain: z.string(),
  receivedAt: z.int().min(0),
  keyId: z.string(),
  signature: z.base64(),
});
const refusedSchema: z.ZodType<Refused> = z.strictObject({
  offset: z.int().min(1),
  reason: z.string(),
  message: z.string(),
});

export interface ImportReceiptsOptions {
  readonly store: FactStore;
  /** The zone of this node: receipts come back for what it has sent. */
  readonly zone: string;
  readonly tenantId: string;
  readonly keyOf: KeyOf;
  /** Tells processes of this node apart. */
  readonly instance: string;
}

export interface ImportedReceipts {
  readonly stream: StreamId;
  readonly manifest: BundleManifest;
  readonly receipts: number;
  /** Everything up to here has arrived. */
  readonly confirmedUpTo: number;
}

/**
 * Checks all of it first, then keeps receipts and quarantine, and confirms what has arrived. Repeating it changes nothing.
 */
export async function importReceipts(
  options: ImportReceiptsOptions,
  path: string,
): Promise<ImportedReceipts> {
  const { store, keyOf, instance } = options;
  const { stream, manifest } = await verify(options, path);
  let count = 0;
  await walkBundle(
    path,
    { kind: 'receipts', keyOf },
    {
      receipts: async (items) => {
        for (const item of items) {
          // The second pass trusts no more than the first one.
          const receipt = await genuine(options, stream, manifest.epoch, item);
          await store.addReceipt('store', receipt);
          count += 1;
        }
      },
      quarantined: async (items) => {
        const refused = items.map((item) => lineAs(refusedSchema, item));
        await keepQuarantined({ store, stream, epoch: manifest.epoch }, refused);
      },
    },
  );
  const consumer = peerConsumer(stream.to);
  const opened = await store.openConsumer(stream, consumer, { instance, leaseMs, start: { after: 0 } });
  const isOurs = await store.noteFetched(stream, opened, manifest.lastOffset);
  const confirmedUpTo = isOurs
    ? await store.confirm(stream, consumer, instance, manifest.lastOffset)
    : opened.cursor;
  return { stream, manifest, receipts: count, confirmedUpTo };
}

async function verify(
  options: ImportReceiptsOptions,
  path: string,
): Promise<{ stream: StreamId; manifest: BundleManifest }> {
  const { store, zone, tenantId, keyOf } = options;
  let stream: StreamId | undefined;
  let epoch = '';
  const manifest = await walkBundle(
    path,
    { kind: 'receipts', keyOf },
    {
      header: async (header) => {
        const { from, to } = header;
        if (from !== zone || header.tenantId !== tenantId)
          throw new BoundaryError(
            'FAILED_PRECONDITION',
            'wrong_stream',
            `the bundle has receipts for ${streamName({ from, to })} of tenant "${header.tenantId}"; this node belongs to zone "${zone}" and tenant "${tenantId}"`,
          );
        stream = { tenantId, buffer: 'store', from, to };
        epoch = header.epoch;
      },
      receipts: async (items) => {
        for (const item of items) if (stream) await genuine(options, stream, epoch, item);
      },
      quarantined: async (items) => {
        for (const item of items) lineAs(refusedSchema, item);
      },
    },
  );
  const state = stream && (await store.state(stream));
  if (!stream || !state)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'source_restored',
      `the bundle has receipts for a stream that has no facts here: this node's database was restored from a backup or replaced`,
    );
  await requireSamePast(store, stream, state, {
    epoch,
    offset: manifest.lastOffset,
    chain: manifest.chain,
  });
  return { stream, manifest };
}

/** A receipt that the other zone has signed, for facts as they are here. */
async function genuine(
  { store, keyOf }: ImportReceiptsOptions,
  stream: StreamId,
  epoch: string,
  item: unknown,
): Promise<SignedReceipt> {
  const line = lineAs(receiptSchema, item);
  const { tenantId, from, to } = stream;
  const receipt = { ...line, tenantId, from, to, epoch, signature: Buffer.from(line.signature, 'base64') };
  const key = keyOf(to, receipt.keyId);
  const chain = await chainAt(store, stream, { epoch, offset: receipt.toOffset });
  if (!key || !isSignedBy(receipt, key) || (chain !== undefined && chain !== receipt.chain))
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'bad_receipt',
      `the receipt of zone "${to}" for ${streamName(stream)} up to offset ${receipt.toOffset} is not signed by its key "${receipt.keyId}", or is for other facts; nothing was confirmed`,
    );
  return receipt;
}

function lineAs<T>(schema: z.ZodType<T>, item: unknown): T {
  const result = schema.safeParse(item);
  if (!result.success) throw new BadBundle('receipts', z.prettifyError(result.error));
  return result.data;
}
