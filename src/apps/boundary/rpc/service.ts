/** The methods of the service on one node. */
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createContextKey,
  type HandlerContext,
} from '@connectrpc/connect';
import type { Logger } from '../../../engine/logger.ts';
import { confirmReceipt, fetchFacts } from '../consume.ts';
import { BoundaryError, invalid } from '../domain/errors.ts';
import { type Action, authorize, type Identity } from '../domain/identity.ts';
import { type ReceiptKey, type SignedReceipt, signReceipt } from '../domain/receipt.ts';
import { requireToken } from '../domain/text.ts';
import type { Zone, Zones } from '../domain/zones.ts';
import { type ReceiveLimits, receivedEntry } from '../handoff/receive.ts';
import { resumeAt } from '../handoff/resume.ts';
import { droppedBefore, keepAnswer, nodePrefix, peerConsumer, peerPrefix } from '../handoff/source.ts';
import type { Intake } from '../intake.ts';
import type { ObjectInfo, ObjectName } from '../objects/names.ts';
import { describeObject, type Objects } from '../objects/objects.ts';
import { BoundaryService, type PutObjectRequest } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { proofMessage, proofsAfter } from '../reconcile/proofs.ts';
import type { FactStore } from '../store/store.ts';
import { toConnectError } from './errors.ts';
import {
  droppedMessage,
  droppedRange,
  factInput,
  fetchRequest,
  frontierOf,
  quarantinedMessage,
  receiptMessage,
  storedFact,
  streamId,
} from './messages.ts';

export interface BoundaryNode {
  readonly zone: Zone;
  readonly zones: Zones;
  /** Zones that producers may send facts to. */
  readonly sendsTo: readonly Zone[];
  readonly tenantId: string;
  readonly store: FactStore;
  readonly intake: Intake;
  readonly objects: Objects;
  /** Whether the zone that a stream goes to has signed the receipt. */
  readonly isGenuine: (receipt: SignedReceipt) => boolean;
  /** What this node takes of peers. Default: what consumers can fetch. */
  readonly receiveLimits?: ReceiveLimits;
  /** Signs receipts of what peers deliver. */
  readonly receiptKey: ReceiptKey;
  readonly logger: Logger;
  /** Hears of every call that was refused because of who made it. */
  readonly onRefusal: (refusal: RefusedCall) => void;
}

export interface RefusedCall {
  /** As the certificate names it; the address where there is none. */
  readonly name: string;
  /** `append`, `deliver` …; `connect` where it was not known who calls. */
  readonly action: string;
  /** Stable: `not_allowed`, `certificate_refused` … */
  readonly code: string;
  /** For people. */
  readonly reason: string;
  readonly address?: string;
}

export const batchLimits = { facts: 1000, bytes: 1024 * 1024 } as const;
/** Set by the server for each request. */
export const callerKey = createContextKey<Identity | undefined>(undefined);

export const boundaryRoutes = (node: BoundaryNode) => (router: ConnectRouter) => {
  const { store, intake, objects, tenantId, logger } = node;
  const allow = (context: HandlerContext, action: Action): void =>
    allowed(node, context.values.get(callerKey), action);
  const caller = (context: HandlerContext) => ({
    tenantId,
    authorize: ({ from, to }: { readonly from: string; readonly to: string }) =>
      allow(context, { kind: 'append', stream: { from, to } }),
  });
  /** Errors of the domain in the words of the protocol. */
  const told = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      throw toConnectError(error, logger);
    }
  };

  router.service(BoundaryService, {
    appendFact: (request, context) =>
      told(async () => {
        const { offset, existing } = await intake.append(caller(context), factInput(request));
        return { offset: BigInt(offset), existing };
      }),

    appendFacts: ({ facts }, context) =>
      told(async () => {
        checkBatch(facts.map((each) => each.fact?.objectJson ?? ''));
        const inputs = facts.map((each, i) => inItem(i, () => factInput(each)));
        const outcomes = await intake.appendAll(caller(context), inputs);
        return {
          results: outcomes.map((outcome) =>
            'appended' in outcome
              ? {
                  result: {
                    case: 'appended' as const,
                    value: { offset: BigInt(outcome.appended.offset), existing: outcome.appended.existing },
                  },
                }
              : { result: { case: 'refused' as const, value: refusal(outcome.refused, logger) } },
          ),
        };
      }),

    findFact: ({ fromZone, messageId }, context) =>
      told(async () => {
        const from = node.zones.resolve(fromZone, 'from_zone');
        requireToken(messageId, 'message_id', 256);
        allow(context, { kind: 'find', from });
        const found = await store.find(tenantId, from === node.zone ? 'store' : 'forward', from, messageId);
        if (!found)
          throw new BoundaryError(
            'NOT_FOUND',
            'no_such_fact',
            `zone "${from}" has no fact with the message id "${messageId}"`,
          );
        return {
          stream: { fromZone: found.stream.from, toZone: found.stream.to },
          offset: BigInt(found.offset),
          ...(found.entry && { fact: storedFact(found.entry, false) }),
        };
      }),

    fetchFacts: (request, context) =>
      told(async () => {
        const stream = streamId(request.stream, node);
        allow(context, { kind: 'consume', stream });
        requireOwnName(context.values.get(callerKey), request.consumerName);
        const wanted = fetchRequest(request, context.signal);
        // A peer that says nothing has nothing: its database is new.
        if (request.have || (request.withRecords && wanted.consumer.startsWith(peerPrefix)))
          await resumeAt(store, stream, wanted, request.have && frontierOf(request.have));
        const fetched = await fetchFacts(store, stream, wanted);
        const dropped = request.withRecords
          ? await droppedBefore(store, stream, fetched.entries[0], Number(request.have?.offset ?? 0n))
          : [];
        return {
          dropped: dropped.map(droppedMessage),
          facts: fetched.entries.map((entry) => storedFact(entry, request.withRecords)),
          epoch: fetched.epoch ?? '',
          cursor: BigInt(fetched.cursor),
          backlog: BigInt(fetched.backlog),
        };
      }),

    confirmReceipt: (request, context) =>
      told(async () => {
        const stream = streamId(request.stream, node);
        allow(context, { kind: 'consume', stream });
        const { consumerName: consumer, instanceId: instance } = request;
        requireOwnName(context.values.get(callerKey), consumer);
        if (stream.buffer === 'store')
          await keepAnswer({ store, stream, isGenuine: node.isGenuine }, request);
        const cursor = await confirmReceipt(store, stream, {
          consumer,
          instance,
          offset: Number(request.offset),
        });
        return { cursorAdvancedTo: BigInt(cursor) };
      }),

    deliverFacts: (request, context) =>
      told(async () => {
        const stream = streamId(request.stream, node);
        allow(context, { kind: 'deliver', stream });
        const entries = await Promise.all(
          request.facts.map((delivered) => receivedEntry(objects, stream, delivered, node.receiveLimits)),
        );
        const delivered = await store.deliver(
          stream,
          {
            epoch: request.epoch,
            dropped: request.dropped.map(droppedRange),
            chainBefore: request.chainBefore,
            entries,
          },
          (receipt) => signReceipt(receipt, node.receiptKey),
        );
        return {
          frontier: { ...delivered.frontier, offset: BigInt(delivered.frontier.offset) },
          ...(delivered.receipt && { receipt: receiptMessage(delivered.receipt) }),
          quarantined: delivered.quarantined.map(quarantinedMessage),
        };
      }),

    listCrossings: ({ stream: asked, afterOffset, limit }, context) =>
      told(async () => {
        const stream = streamId(asked, node);
        allow(context, { kind: 'reconcile', stream });
        const range = pageOf(afterOffset, limit);
        const [receipts, quarantined] = await Promise.all([
          store.receipts(stream, range),
          store.quarantinedNotes(stream, range),
        ]);
        return {
          receipts: receipts.map(receiptMessage),
          quarantined: quarantined.map(quarantinedMessage),
        };
      }),

    listProofs: ({ stream: asked, afterOffset, limit }, context) =>
      told(async () => {
        const stream = streamId(asked, node);
        allow(context, { kind: 'reconcile', stream });
        const proofs = await proofsAfter(store, stream, pageOf(afterOffset, limit));
        return { entries: proofs.map(proofMessage) };
      }),

    getFrontier: (request, context) =>
      told(async () => {
        const stream = streamId(request.stream, node);
        allow(context, { kind: 'frontier', stream });
        if (stream.buffer === 'forward') {
          const frontier = await store.frontier(stream);
          return frontier ? { frontier: { ...frontier, offset: BigInt(frontier.offset) } } : {};
        }
        const state = await store.state(stream);
        return state
          ? { frontier: { epoch: state.epoch, offset: BigInt(state.last), chain: state.chain } }
          : {};
      }),

    putObject: (requests, context) =>
      told(async () => {
        allow(context, { kind: 'put objects' });
        const parts = requests[Symbol.asyncIterator]();
        const first = await parts.next();
        const header = !first.done && first.value.part.case === 'header' ? first.value.part.value : undefined;
        if (!header) throw invalid('header', 'is missing: the first message must name the object');
        const { bucket, key, digest, mediaType, fromByte } = header;
        const { digest: stored, size } = await objects.put({ tenantId, bucket, key }, bytesOf(parts), {
          digest: digest || undefined,
          mediaType: mediaType || undefined,
          from: Number(fromByte),
        });
        return { digest: stored, size: BigInt(size) };
      }),

    findObject: ({ bucket, key }, context) =>
      told(async () => {
        allow(context, { kind: 'put objects' });
        const name = { tenantId, bucket, key };
        const stored = await objects.find(name);
        return {
          ...(stored && { stored: infoMessage(stored) }),
          uploadOffset: BigInt(await objects.resumable(name)),
          maxBytes: BigInt(objects.maxBytes),
        };
      }),

    async *getObject({ bucket, key, fromByte, byteCount }, context) {
      try {
        const name = { tenantId, bucket, key };
        await allowedToRead(node, context.values.get(callerKey), name);
        const { info, bytes } = await objects.get(name, {
          from: Number(fromByte),
          count: byteCount === undefined ? undefined : Number(byteCount),
        });
        yield { part: { case: 'info', value: infoMessage(info) } };
        for await (const data of bytes) yield { part: { case: 'data', value: data } };
      } catch (error) {
        throw toConnectError(error, logger);
      }
    },
  });
};

/** Also for requests that are no calls of the service. */
export function allowed(node: BoundaryNode, caller: Identity | undefined, action: Action): void {
  if (!caller) throw new ConnectError('who calls is not known', Code.Unauthenticated);
  try {
    authorize(caller, action, node);
  } catch (error) {
    const code = error instanceof BoundaryError ? error.reason : 'failed';
    node.onRefusal({ name: caller.name, action: action.kind, code, reason: (error as Error).message });
    throw error;
  }
}

/**
 * A peer may read what facts to its zone name, and a consumer what any fact here names: both may fetch these facts. A
 * caller that may store objects reads all of them. Throws NOT_FOUND for what is not stored.
 */
export async function allowedToRead(
  node: BoundaryNode,
  caller: Identity | undefined,
  name: ObjectName,
): Promise<void> {
  allowed(node, caller, { kind: 'get objects' });
  if (caller?.role !== 'peer' && caller?.role !== 'consumer') return;
  if (await node.objects.isNamed(name, caller.role === 'peer' ? { sentTo: caller.zone } : {})) return;
  allowed(node, caller, { kind: 'get objects', unnamed: describeObject(name) });
}

/** A peer has one consumer, of its zone's name; nobody else may move it. */
function requireOwnName(caller: Identity | undefined, consumer: string): void {
  const isPeer = caller?.role === 'peer';
  const prefix = [peerPrefix, nodePrefix].find((each) => consumer.startsWith(each));
  if (isPeer ? consumer !== peerConsumer(caller.zone) : prefix !== undefined)
    throw invalid(
      'consumer_name',
      isPeer
        ? `of a peer must be "${peerConsumer(caller.zone)}"`
        : `must not begin with "${prefix}": that is for ${prefix === peerPrefix ? 'peers' : 'the node itself'}`,
    );
}

async function* bytesOf(parts: AsyncIterator<PutObjectRequest>): AsyncIterable<Uint8Array> {
  for (let next = await parts.next(); !next.done; next = await parts.next()) {
    if (next.value.part.case !== 'data')
      throw invalid('data', 'is missing: only the first message has a header');
    yield next.value.part.value;
  }
}

const infoMessage = ({ digest, size, mediaType = '' }: ObjectInfo) => ({
  digest,
  size: BigInt(size),
  mediaType,
});

const pageLimit = 500;

const pageOf = (afterOffset: bigint, limit: number): { readonly after: number; readonly limit: number } => ({
  // Nothing lies behind the largest offset; the database does not take a larger number.
  after: Math.min(Math.max(0, Number(afterOffset)), Number.MAX_SAFE_INTEGER),
  limit: limit >= 1 && limit <= pageLimit ? limit : pageLimit,
});

function checkBatch(objects: readonly string[]): void {
  if (objects.length > batchLimits.facts)
    throw invalid('facts', `has ${objects.length} facts; the limit is ${batchLimits.facts}`);
  const bytes = objects.reduce((sum, each) => sum + Buffer.byteLength(each), 0);
  if (bytes > batchLimits.bytes)
    throw invalid('facts', `has ${bytes} bytes of objects; the limit is ${batchLimits.bytes}`);
}

/** Without an envelope there is nothing that could be answered for: the whole request is refused. */
function inItem<T>(i: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw invalid(`facts[${i}]`, `is not complete: ${(error as Error).message}`);
  }
}

function refusal(error: Error, logger: Logger) {
  const { code, rawMessage } = toConnectError(error, logger);
  const reason = error instanceof BoundaryError ? error.reason : 'failed';
  const name = Code[code].replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`).toLowerCase();
  return { reason, message: rawMessage, code: name };
}
