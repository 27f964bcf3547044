import { z } from 'zod';
import { sha256, sha256Hex } from '../compile/index.ts';
import { verifySignature } from '../compile/signature.ts';
import type { Envelope, EnvelopeEvent, EnvelopeReport, ReportedMismatch } from './envelope.ts';

/*
 * Individual data in an exported passport: each event is signed, names the passport, its own number and the hash of the event
 * before it. A file has the newest events without a gap, all of them while they are few. What it cannot show by itself is
 * that newer ones were cut off: the signed manifest of a bundle does.
 */

/** The newest events that are shown and exported; older ones are read through the API of individual data. */
export const mostExportedEvents = 200;

const signedContent = z.object({
  passport_id: z.string(),
  seq: z.int().min(1),
  previous: z.string().nullable(),
});

/** An event as it stands in the file, with what is wrong with it alone. */
interface ReadEvent {
  readonly at: number;
  readonly seq: number | undefined;
  readonly previous: string | null;
  readonly hash: string;
  readonly fault: string | undefined;
}

export function checkEvents(
  { events, version }: Envelope,
  publicKeys: Readonly<Record<string, Uint8Array>>,
): Pick<EnvelopeReport, 'checked' | 'mismatches'> {
  if (events.length === 0) return { checked: [], mismatches: [] };
  const passportId = /"passport_id":"([^"]*)"/.exec(version.receipt)?.[1];
  const read = events.map((event, at) => readEvent(event, at, passportId, publicKeys));
  const order = new Order(read);
  const faults = read.flatMap((event): ReportedMismatch[] => {
    const message = event.fault ?? order.faultOf(event);
    const at = `/events/${event.at}`;
    return message === undefined ? [] : [{ part: 'events', at, message: `events ${at}: ${message}` }];
  });
  const missing = missingRanges(read).map(
    ([first, last]): ReportedMismatch => ({
      part: 'events',
      at: '/events',
      message: `events: ${first === last ? `event ${first} is` : `events ${first} to ${last} are`} missing`,
    }),
  );
  const mismatches = [...faults, ...missing];
  return {
    checked: mismatches.length === 0 ? [`events: ${events.length} signed, in their order`] : [],
    mismatches,
  };
}

function readEvent(
  { content, signing_key: keyId, signature }: EnvelopeEvent,
  at: number,
  passportId: string | undefined,
  publicKeys: Readonly<Record<string, Uint8Array>>,
): ReadEvent {
  const bytes = new TextEncoder().encode(content);
  const { data } = signedContent.safeParse(jsonIn(content));
  const key = Object.hasOwn(publicKeys, keyId) ? publicKeys[keyId] : undefined;
  const signed = Buffer.from(signature, 'base64url');
  const fault = (): string | undefined => {
    if (!data) return 'is no event of a battery';
    if (data.passport_id !== passportId) return 'belongs to another passport';
    if (!key) return `there is no public key "${keyId}"`;
    // One signature has one text: the last letter has bits that decode to nothing.
    return signed.toString('base64url') === signature && verifySignature(sha256(bytes), signed, key)
      ? undefined
      : `the signature of event ${data.seq} does not fit`;
  };
  return { at, seq: data?.seq, previous: data?.previous ?? null, hash: sha256Hex(bytes), fault: fault() };
}

/** Looks only at events that are as they were signed: one that was changed is named, and not the one after it as well. */
class Order {
  readonly #hashes = new Map<number, string>();
  #highest = 0;

  constructor(all: readonly ReadEvent[]) {
    for (const { seq, hash, fault } of all)
      if (fault === undefined && seq !== undefined) this.#hashes.set(seq, hash);
  }

  /** In the order of the file. */
  faultOf({ seq = 0, previous }: ReadEvent): string | undefined {
    if (seq <= this.#highest) return `event ${seq} is out of order`;
    this.#highest = seq;
    const before = seq === 1 ? null : (this.#hashes.get(seq - 1) ?? previous);
    return previous === before ? undefined : `event ${seq} does not follow the event before it`;
  }
}

type Range = readonly [first: number, last: number];

/** Numbers that no event has. An event that was changed stands for the number that it says, or for that of its place. */
function missingRanges(all: readonly ReadEvent[]): readonly Range[] {
  const sound = all.flatMap(({ fault, seq }) => (fault === undefined && seq !== undefined ? [seq] : []));
  const sorted = [...new Set(sound)].sort((a, b) => a - b);
  const start = all.length < mostExportedEvents ? 1 : (sorted[0] ?? 1);
  let missing: readonly Range[] = sorted.flatMap((seq, at): Range[] => {
    const expected = at === 0 ? start : (sorted[at - 1] ?? 0) + 1;
    return seq > expected ? [[expected, seq - 1]] : [];
  });
  for (const { at, seq, fault } of all) {
    if (fault === undefined) continue;
    const isThere = (number: number): boolean => missing.some((range) => isIn(range, number));
    missing = without(missing, seq !== undefined && isThere(seq) ? seq : start + at);
  }
  return missing;
}

const isIn = ([first, last]: Range, number: number): boolean => first <= number && number <= last;

const without = (ranges: readonly Range[], number: number): readonly Range[] =>
  ranges.flatMap((range): Range[] => {
    if (!isIn(range, number)) return [range];
    const [first, last] = range;
    return [
      ...(first < number ? ([[first, number - 1]] as const) : []),
      ...(number < last ? ([[number + 1, last]] as const) : []),
    ];
  });

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
