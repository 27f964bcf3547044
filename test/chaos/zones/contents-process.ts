/** Prints what a zone holds of both streams, a line for each entry, and the ranges of its receipts; checks every byte of content. */
import { createHash, hash } from 'node:crypto';
import { boundaryApp } from '../../../src/apps/boundary/app.ts';
import { boundaryKeys } from '../../../src/apps/boundary/config.ts';
import { receiptText } from '../../../src/apps/boundary/domain/receipt.ts';
import { isGap } from '../../../src/apps/boundary/domain/record.ts';
import { openNode } from '../../../src/apps/boundary/node.ts';
import { settingsFrom } from '../../../src/apps/boundary/settings.ts';
import type { StoredEntry, StreamId } from '../../../src/apps/boundary/store/store.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { settingsOf } from '../../../src/host/app.ts';
import { loadConfig } from '../../../src/host/config.ts';
import { contentOf, digestOf } from './content.ts';

export interface Content {
  readonly buffer: string;
  readonly offset: number;
  readonly id: string;
  /** Of offset, id, digest and record, byte for byte. The chain hash is each log's own. */
  readonly hash: string;
  readonly hasObject: boolean;
  /** Why it is not what its producer appended. */
  readonly wrong?: string;
}

export interface ReceiptRange {
  readonly buffer: string;
  readonly receipt: readonly [number, number];
  /** Of all that is signed, and the signature. */
  readonly hash: string;
}

const settings = settingsFrom(settingsOf(boundaryKeys, loadConfig([boundaryApp], { env: process.env })));
if (!settings) throw new Error('no zone');
const { zone, tenantId, peers } = settings;
const other = peers[0]?.zone ?? '';
const database = await Database.connect({ url: process.env.DATABASE_URL ?? '', poolSize: 4 });
const { store, objects } = await openNode(settings, database);
const print = (line: Content | ReceiptRange): boolean => process.stdout.write(`${JSON.stringify(line)}\n`);

async function wrongIn(entry: StoredEntry): Promise<string | undefined> {
  const { key, record } = entry;
  if (isGap(record)) return `a gap record: ${record.gap.reason}`;
  const { object, attachmentBytes } = contentOf(key);
  const { reference } = record;
  // In canonical form: the members are in order already.
  if (attachmentBytes === 0) return record.object === JSON.stringify(object) ? undefined : 'another object';
  if (!reference || reference.digest !== digestOf(key, attachmentBytes)) return 'another reference';
  const sum = createHash('sha256');
  for await (const part of (await objects.get({ tenantId, bucket: reference.bucket, key: reference.key }))
    .bytes)
    sum.update(part);
  return `sha256:${sum.digest('hex')}` === reference.digest ? undefined : 'other bytes';
}

const streams: StreamId[] = [
  { tenantId, buffer: 'store', from: zone, to: other },
  { tenantId, buffer: 'forward', from: other, to: zone },
];
for (const stream of streams) {
  const { buffer } = stream;
  for (let after = 0; ; ) {
    const page = await store.read(stream, { after, limit: 1000, maxBytes: 4_000_000 });
    for (const entry of page) {
      const { offset, key, digest, text, record } = entry;
      const wrong = await wrongIn(entry);
      const hasObject = !isGap(record) && record.reference !== undefined;
      const sum = hash('sha256', JSON.stringify([offset, key, digest, text]));
      print({ buffer, offset, id: key, hash: sum, hasObject, ...(wrong !== undefined && { wrong }) });
    }
    const last = page.at(-1);
    if (!last) break;
    after = last.offset;
  }
  for (let after = 0; ; ) {
    const page = await store.receipts(stream, { after, limit: 1000 });
    for (const receipt of page) {
      const signed = [receiptText(receipt), receipt.keyId, Buffer.from(receipt.signature).toString('hex')];
      print({
        buffer,
        receipt: [receipt.fromOffset, receipt.toOffset],
        hash: hash('sha256', JSON.stringify(signed)),
      });
    }
    const last = page.at(-1);
    if (!last) break;
    after = last.toOffset;
  }
}
await store.stop();
await database.close();
