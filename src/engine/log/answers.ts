/** From what SQL says about a batch to an answer for each of its callers. */
import { TallymanError } from '../errors.ts';
import type { AppendedRow } from '../sql/log-append.ts';
import type { Prepared } from './entry.ts';

export interface Appended {
  readonly offset: number;
  /**
   * True when the key was there. Also after a connection was lost during the commit and the entry turned out to be in:
   * the answer may be late, but it is never wrong.
   */
  readonly existing: boolean;
}

export type Answer = Appended | Error;

/** The first entry of each key, and its index. */
export function byKey(entries: readonly Prepared[]): { distinct: Prepared[]; indexOf: Map<string, number> } {
  const indexOf = new Map<string, number>();
  const distinct = entries.filter(({ key }) => {
    if (indexOf.has(key)) return false;
    indexOf.set(key, indexOf.size);
    return true;
  });
  return { distinct, indexOf };
}

interface Place {
  readonly offset: number;
  /** The whole digest, or its first half. */
  readonly digest: string;
  /** Set once an answer was given for the entry that was added. */
  existing: boolean;
}

/** New entries lie one after another from `first` on; for the others SQL says where they have been. */
export function placesOf(distinct: readonly Prepared[], { first, taken }: AppendedRow): Place[] {
  const known = new Map(taken.map((place) => [place[0], place]));
  let next = first;
  return distinct.map(({ digest }, i) => {
    const place = known.get(i + 1);
    if (place) return { offset: place[2], digest: place[3], existing: true };
    next += 1;
    return { offset: next - 1, digest, existing: false };
  });
}

/** Several callers may have come with one key; each is judged against what the log holds now. */
export function answersFor(
  stream: string,
  entries: readonly Prepared[],
  indexOf: ReadonlyMap<string, number>,
  places: readonly Place[],
): Answer[] {
  return entries.map(({ key, digest }) => {
    const place = places[indexOf.get(key) ?? -1];
    if (!place || !digest.startsWith(place.digest)) return conflict(stream, key);
    const answer = { offset: place.offset, existing: place.existing };
    place.existing = true;
    return answer;
  });
}

export function conflict(stream: string, key: string | undefined, cause?: unknown): TallymanError {
  const message =
    key === undefined && cause instanceof Error
      ? cause.message
      : `key "${key}" of stream "${stream}" was appended before with other content`;
  return new TallymanError(
    'CONFLICTING_DUPLICATE',
    `${message}. An entry never changes: give what is new a key of its own.`,
    { cause, details: { stream, ...(key !== undefined && { key }) } },
  );
}
