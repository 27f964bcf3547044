/** Messages of the service, to and from the domain. */
import { create } from '@bufbuild/protobuf';
import type { FetchRequest } from '../consume.ts';
import type { DroppedRange, Frontier } from '../domain/delivery.ts';
import { invalid } from '../domain/errors.ts';
import { type FactInput, isTime } from '../domain/fact.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { SignedReceipt } from '../domain/receipt.ts';
import { type FactRecord, isGap, standsForIn } from '../domain/record.ts';
import type { Zones } from '../domain/zones.ts';
import {
  type AppendFactRequest,
  AppendFactRequestSchema,
  type DroppedRange as DroppedMessage,
  DroppedRangeSchema,
  type FetchFactsRequest,
  type Frontier as FrontierMessage,
  type ObjectReference as ObjectReferenceMessage,
  type QuarantinedFact,
  QuarantinedFactSchema,
  type Receipt,
  ReceiptSchema,
  type StartPosition,
  type StoredFact,
  StoredFactSchema,
  type Stream,
} from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import type { BufferRole, Position, QuarantinedNote, StoredEntry, StreamId } from '../store/store.ts';

export function factInput({ envelope, fact }: AppendFactRequest): FactInput {
  if (!envelope) throw invalid('envelope', 'is missing');
  if (!fact) throw invalid('fact', 'is missing');
  return {
    messageId: envelope.messageId,
    fromZone: envelope.fromZone,
    toZone: envelope.toZone,
    producedAt: Number(envelope.producedAtUnixMs),
    correlationId: envelope.correlationId,
    causationId: envelope.causationId,
    labels: envelope.labels,
    subject: fact.subject,
    predicate: fact.predicate,
    objectJson: fact.objectJson,
    objectRef: fact.objectRef && reference(fact.objectRef),
  };
}

const reference = ({
  bucket,
  key,
  digest,
  size,
  mediaType,
  fileName,
}: ObjectReferenceMessage): ObjectReference => ({
  bucket,
  key,
  digest,
  ...(size !== 0n && { size: Number(size) }),
  ...(mediaType !== '' && { mediaType }),
  ...(fileName !== '' && { fileName }),
});

/** The stream of a request on a node: the one that leaves its zone, or the one that comes in. */
export function streamId(
  stream: Stream | undefined,
  node: { readonly tenantId: string; readonly zone: string; readonly zones: Zones },
): StreamId {
  if (!stream) throw invalid('stream', 'is missing');
  const from = node.zones.resolve(stream.fromZone, 'stream.from_zone');
  const to = node.zones.resolve(stream.toZone, 'stream.to_zone');
  if (from === to) throw invalid('stream.to_zone', `must be another zone than from_zone, got "${to}" twice`);
  if (from !== node.zone && to !== node.zone)
    throw invalid('stream', `from "${from}" to "${to}" does not concern this node of zone "${node.zone}"`);
  const buffer: BufferRole = from === node.zone ? 'store' : 'forward';
  return { tenantId: node.tenantId, buffer, from, to };
}

export function fetchRequest(message: FetchFactsRequest, signal: AbortSignal): FetchRequest {
  const { consumerName, instanceId, limit, maxBytes, waitMs, start } = message;
  const position = start && startOf(start);
  return {
    consumer: consumerName,
    instance: instanceId,
    // Zero is what a message has that does not say.
    ...(limit !== 0 && { limit }),
    ...(maxBytes !== 0 && { maxBytes }),
    waitMs,
    ...(position && { start: position }),
    signal,
  };
}

function startOf({ position }: StartPosition): Position | undefined {
  switch (position.case) {
    case 'afterOffset':
      if (position.value < 0n) throw invalid('start.after_offset', 'must not be negative');
      return { after: Number(position.value) };
    case 'atUnixMs':
      if (!isTime(Number(position.value)))
        throw invalid('start.at_unix_ms', `must be milliseconds since 1970, got ${position.value}`);
      return { at: new Date(Number(position.value)) };
    case 'atEnd':
      return position.value ? 'end' : undefined;
    default:
      return undefined;
  }
}

export function storedFact(
  { offset, digest, chain, record, text, appendedAt }: StoredEntry,
  withRecord: boolean,
): StoredFact {
  const standsFor = isGap(record) ? undefined : standsForIn(record);
  const common = {
    offset: BigInt(offset),
    digest,
    chain,
    ...(withRecord && { record: text }),
    ...(standsFor && {
      standsFor: {
        epoch: standsFor.epoch,
        offset: BigInt(standsFor.offset),
        messageId: standsFor.messageId,
        isDropped: standsFor.isDropped === true,
      },
    }),
  };
  if (isGap(record))
    return create(StoredFactSchema, {
      ...common,
      acceptedAtUnixMs: BigInt(appendedAt.getTime()),
      entry: { case: 'gap', value: record.gap },
    });
  return create(StoredFactSchema, {
    ...common,
    acceptedAtUnixMs: BigInt(record.acceptedAt),
    entry: { case: 'fact', value: appendRequest(record) },
  });
}

const appendRequest = (record: FactRecord): AppendFactRequest =>
  create(AppendFactRequestSchema, {
    envelope: {
      messageId: record.messageId,
      fromZone: record.from,
      toZone: record.to,
      producedAtUnixMs: BigInt(record.producedAt),
      ...(record.correlationId !== undefined && { correlationId: record.correlationId }),
      ...(record.causationId !== undefined && { causationId: record.causationId }),
      labels: { ...record.labels },
    },
    fact: {
      subject: record.subject,
      predicate: record.predicate,
      objectJson: record.object,
      ...(record.reference && {
        objectRef: { ...record.reference, size: BigInt(record.reference.size ?? 0) },
      }),
    },
  });

export const frontierOf = ({ epoch, offset, chain }: FrontierMessage): Frontier => ({
  epoch,
  offset: Number(offset),
  chain,
});

export const droppedMessage = ({ from, to, chain }: DroppedRange): DroppedMessage =>
  create(DroppedRangeSchema, { fromOffset: BigInt(from), toOffset: BigInt(to), chain });

export const droppedRange = ({ fromOffset, toOffset, chain }: DroppedMessage): DroppedRange => ({
  from: Number(fromOffset),
  to: Number(toOffset),
  chain,
});

export const quarantinedMessage = ({
  offset,
  reason,
  message,
  messageId,
  resolution,
}: QuarantinedNote): QuarantinedFact =>
  create(QuarantinedFactSchema, {
    offset: BigInt(offset),
    gap: { reason, message, messageId },
    ...(resolution && { resolution: resolution.how, resolvedBy: BigInt(resolution.by) }),
  });

/** The tenant is not in any message: it is that of the node that reads it. */
export const receiptOf = (receipt: Receipt, { tenantId, from, to }: StreamId): SignedReceipt => ({
  tenantId,
  from,
  to,
  epoch: receipt.epoch,
  fromOffset: Number(receipt.fromOffset),
  toOffset: Number(receipt.toOffset),
  chain: receipt.chain,
  receivedAt: Number(receipt.receivedAtUnixMs),
  keyId: receipt.keyId,
  signature: receipt.signature,
});

export const receiptMessage = (receipt: SignedReceipt): Receipt =>
  create(ReceiptSchema, {
    stream: { fromZone: receipt.from, toZone: receipt.to },
    epoch: receipt.epoch,
    fromOffset: BigInt(receipt.fromOffset),
    toOffset: BigInt(receipt.toOffset),
    chain: receipt.chain,
    receivedAtUnixMs: BigInt(receipt.receivedAt),
    keyId: receipt.keyId,
    signature: receipt.signature,
  });
