/**
 * The way out of quarantine, in the zone that sent the fact. The gap record keeps its offset, in both zones, forever. A later fact
 * stands for it, with a message id and an offset of its own, and crosses as every fact does; when it arrives the receiver notes
 * that, too. It has the content of the fact again (redrive), or says that it will not come, and why (drop).
 */
import { streamName } from './domain/delivery.ts';
import { BoundaryError, invalid } from './domain/errors.ts';
import { contentDigest } from './domain/fact.ts';
import { canonicalText } from './domain/json.ts';
import { type FactRecord, type StandsFor, standsForIn } from './domain/record.ts';
import { requireToken } from './domain/text.ts';
import type { Admission } from './limits/admission.ts';
import type { Objects } from './objects/objects.ts';
import type { Appended, FactStore, QuarantinedEntry, Resolution, StreamId } from './store/store.ts';

export interface RedriveOptions {
  readonly store: FactStore;
  readonly objects: Pick<Objects, 'hold'>;
  readonly admission: Admission;
  /** A store buffer of this node. */
  readonly stream: StreamId;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

/** Of the fact that could not be taken. */
export interface WhichFact {
  readonly offset: number;
  /** Needed where two epochs have this offset in quarantine. */
  readonly epoch?: string;
}

export interface StandIn extends Appended {
  readonly messageId: string;
}

/**
 * Sends the content again, after the cause is gone: a limit was raised, an object was removed. After a conflict it is
 * accepted there because its message id is new. Repeating it changes nothing. If the receiver refuses it again, the later fact is
 * in quarantine, too, and can be redriven in its turn.
 */
export async function redrive(
  options: RedriveOptions,
  which: WhichFact,
  { as }: { readonly as?: string } = {},
): Promise<StandIn> {
  if (as !== undefined) requireToken(as, 'as', 256);
  const entry = await find(options, which, 'redriven');
  if (as !== undefined && entry.resolution)
    throw alreadyResolved(options.stream, entry.offset, entry.resolution);
  const record = recordIn(entry);
  const { reference } = record;
  const messageId = as ?? standInId('redrive', entry);
  const { tenantId, buffer, from, to } = options.stream;
  if (reference) {
    const { bucket, key, digest } = reference;
    // Before the fact is appended, as with every fact: the object must be here, and stays.
    await options.objects.hold({ tenantId, bucket, key, digest, buffer, from, to, messageId });
  }
  return standIn(options, entry, { ...record, messageId, standsFor: originOf(entry, record) }, 'redriven');
}

/** Gives the fact up. Consumers in the other zone get a fact that says so: `fact:<message id>` `was_dropped`. */
export async function dropQuarantined(
  options: RedriveOptions,
  which: WhichFact,
  reason: string,
): Promise<StandIn> {
  requireToken(reason, 'reason', 1024);
  const entry = await find(options, which, 'dropped');
  const record = recordIn(entry);
  const origin = originOf(entry, record);
  const standsFor: StandsFor = { ...origin, isDropped: true };
  const object = { offset: origin.offset, epoch: origin.epoch, reason };
  const now = (options.now ?? Date.now)();
  return standIn(
    options,
    entry,
    {
      v: 1,
      messageId: standInId('drop', entry),
      from: record.from,
      to: record.to,
      acceptedAt: now,
      producedAt: now,
      subject: `fact:${origin.messageId}`,
      predicate: 'was_dropped',
      object: canonicalText(JSON.stringify(object), 'object'),
      standsFor,
    },
    'dropped',
  );
}

/** Redrives everything that is open, or what was refused for one reason. Returns how many facts. */
export async function redriveAll(
  options: RedriveOptions,
  { reason }: { readonly reason?: string } = {},
): Promise<number> {
  const { store, stream } = options;
  const { last = 0 } = (await store.state(stream)) ?? {};
  let redriven = 0;
  for (let after = 0; ; ) {
    const page = await store.quarantined(stream, { after, limit: 100, isOpen: true });
    for (const { offset, epoch, reason: refusedFor } of page) {
      // What is appended meanwhile may be refused again: that is for the next run.
      if (offset > last || (reason !== undefined && refusedFor !== reason)) continue;
      await redrive(options, { offset, epoch });
      redriven += 1;
    }
    after = page.at(-1)?.offset ?? Number.MAX_SAFE_INTEGER;
    if (page.length < 100 || after > last) return redriven;
  }
}

/** An append of the same id and content gives the first offset: a crash before the note is made up for by repeating it. */
async function standIn(
  { store, admission, stream, now = Date.now }: RedriveOptions,
  { epoch, offset }: QuarantinedEntry,
  record: FactRecord,
  how: 'redriven' | 'dropped',
): Promise<StandIn> {
  await admission.admit(stream, record.object.length);
  const digest = contentDigest(record);
  const appended = await store.append(stream, { record: { ...record, acceptedAt: now() }, digest });
  await store.resolveQuarantined(stream, { epoch, offset }, { how, by: appended.offset });
  return { ...appended, messageId: record.messageId };
}

async function find(
  { store, stream }: RedriveOptions,
  { offset, epoch }: WhichFact,
  how: 'redriven' | 'dropped',
): Promise<QuarantinedEntry> {
  if (!Number.isSafeInteger(offset) || offset < 1)
    throw invalid('offset', `must be an offset, got ${offset}`);
  const there = (await store.quarantined(stream, { after: offset - 1, limit: 10 })).filter(
    (each) => each.offset === offset && (epoch === undefined || each.epoch === epoch),
  );
  const [entry] = there;
  if (!entry)
    throw new BoundaryError(
      'NOT_FOUND',
      'not_in_quarantine',
      `no fact of ${streamName(stream)} with offset ${offset} is in quarantine here`,
    );
  if (there.length > 1)
    throw invalid(
      'epoch',
      `is needed: offset ${offset} is in quarantine in the epochs ${there.map((each) => each.epoch).join(', ')}`,
    );
  if (entry.resolution && entry.resolution.how !== how)
    throw alreadyResolved(stream, offset, entry.resolution);
  return entry;
}

const alreadyResolved = (stream: StreamId, offset: number, { how, by }: Resolution): BoundaryError =>
  new BoundaryError(
    'FAILED_PRECONDITION',
    'already_resolved',
    `the fact at offset ${offset} of ${streamName(stream)} was ${how} by the fact at offset ${by}`,
  );

/** A redrive decides that the content is new, so that former ids do not count for it. */
function recordIn({ text }: QuarantinedEntry): FactRecord {
  const { formerIds: _, ...record } = JSON.parse(text) as FactRecord;
  return record;
}

/** A redrive of a redrive stands for the first one: that is what has the gap record that consumers know. */
const originOf = ({ epoch, offset, messageId }: QuarantinedEntry, record: FactRecord): StandsFor =>
  standsForIn(record) ?? { epoch, offset, messageId };

/** Always the same for one fact, and short: a message id has 256 bytes at most, and the first one may have them all. */
const standInId = (what: 'redrive' | 'drop', { epoch, offset }: QuarantinedEntry): string =>
  `${what}:${epoch}:${offset}`;
