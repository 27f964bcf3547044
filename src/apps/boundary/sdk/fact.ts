/** A fact as a producer gives it, checked as the node will check it, and as the message that is sent. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { invalid } from '../domain/errors.ts';
import { checkFact, contentDigest, type FactInput } from '../domain/fact.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import { slugOf, Zones } from '../domain/zones.ts';
import type { AppendFactRequestSchema } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { type MessageIdRule, messageIdOf } from './message-id.ts';
import type { ObjectSource } from './objects.ts';

export interface ProducerFact {
  /** Derive it from what the fact is about: `messageId(…)`, `uuidV5(…)`. Default: what the producer's rule says. */
  readonly messageId?: string;
  /** `enterprise`, or "Enterprise". */
  readonly toZone: string;
  /** `kind:id`, such as `work_order:WO-2026-001`. */
  readonly subject: string;
  /** lower_snake_case, such as `has_batch_attachment`. */
  readonly predicate: string;
  /** Any JSON value. Left out where there is an attachment: then it is the attachment's reference. */
  readonly object?: unknown;
  /** A file that the fact is about. It is stored before the fact is appended. */
  readonly attachment?: Attachment;
  /** An object that is stored already. */
  readonly objectRef?: ObjectReference;
  readonly correlationId?: string;
  readonly causationId?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** By your clock. Default: now. Nothing is ordered or deleted by it. */
  readonly producedAt?: Date;
}

export interface Attachment {
  readonly bucket: string;
  readonly key: string;
  readonly source: ObjectSource;
  readonly mediaType?: string;
  /** As people know the file. */
  readonly fileName?: string;
}

/** What is kept, and sent again as it is until there is an answer. */
export interface PreparedFact {
  readonly input: FactInput;
  /** The slug of the zone that it goes to. */
  readonly toZone: string;
  /** See `contentDigest`: what makes two facts of one message id the same. */
  readonly contentDigest: string;
}

export interface PrepareOptions {
  readonly fromZone: string;
  readonly rule: MessageIdRule | undefined;
  /** The attachment, as it is stored. */
  readonly stored: ObjectReference | undefined;
}

/** Throws INVALID_ARGUMENT with the field, so that a producer learns of it while it still knows what it was doing. */
export function prepareFact(fact: ProducerFact, { fromZone, rule, stored }: PrepareOptions): PreparedFact {
  if (stored && fact.objectRef)
    throw invalid('fact.object_ref', 'and an attachment exclude each other: a fact is about one object');
  const reference = stored ?? fact.objectRef;
  const input: FactInput = {
    messageId: messageIdOf(fact, rule),
    fromZone,
    toZone: fact.toZone,
    producedAt: (fact.producedAt ?? new Date()).getTime(),
    subject: fact.subject,
    predicate: fact.predicate,
    objectJson: jsonOf(fact.object === undefined && reference ? asJson(reference) : fact.object),
    ...(reference && { objectRef: reference }),
    ...(fact.correlationId !== undefined && { correlationId: fact.correlationId }),
    ...(fact.causationId !== undefined && { causationId: fact.causationId }),
    ...(fact.labels && { labels: fact.labels }),
  };
  // Whether the zones are configured only the node knows; that their names are names is checked here.
  const zones = new Zones([fromZone, fact.toZone].map((name, i) => requireSlug(name, zoneFields[i] ?? '')));
  const checked = checkFact(input, zones);
  return { input, toZone: checked.to, contentDigest: contentDigest(checked) };
}

const zoneFields = ['envelope.from_zone', 'envelope.to_zone'];

function requireSlug(name: string, field: string): string {
  const slug = slugOf(name);
  if (slug === '') throw invalid(field, `is no name of a zone: ${JSON.stringify(name)}`);
  return slug;
}

/** With the members that integrators know. */
const asJson = ({ bucket, key, digest, size, mediaType, fileName }: ObjectReference) => ({
  bucket,
  key,
  digest,
  ...(size !== undefined && { size }),
  ...(mediaType !== undefined && { media_type: mediaType }),
  ...(fileName !== undefined && { file_name: fileName }),
});

function jsonOf(object: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(object);
  } catch (error) {
    throw invalid('fact.object_json', `cannot be written as JSON: ${(error as Error).message}`);
  }
  if (text === undefined) throw invalid('fact.object_json', 'is missing: expected any JSON value');
  return text;
}

export function appendRequest(input: FactInput): MessageInitShape<typeof AppendFactRequestSchema> {
  const { correlationId, causationId, labels, objectRef } = input;
  return {
    envelope: {
      messageId: input.messageId,
      fromZone: input.fromZone,
      toZone: input.toZone,
      producedAtUnixMs: BigInt(input.producedAt),
      labels: { ...labels },
      ...(correlationId !== undefined && { correlationId }),
      ...(causationId !== undefined && { causationId }),
    },
    fact: {
      subject: input.subject,
      predicate: input.predicate,
      objectJson: input.objectJson,
      ...(objectRef && { objectRef: { ...objectRef, size: BigInt(objectRef.size ?? 0) } }),
    },
  };
}
