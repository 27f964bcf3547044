/**
 * Small messages that are replaced, each by one that names the sequence of the one before: of two changes at once the server
 * refuses one.
 */
import { randomUUID } from 'node:crypto';
import { TallymanError } from '../../../../engine/errors.ts';
import { type BatchMessage, commit, conflict, store } from '../../store/jetstream/commit.ts';
import { parsed } from '../../store/jetstream/parsed.ts';
import { lastOf, nextMessages } from '../../store/jetstream/reads.ts';
import type { JetStreamCluster } from '../../store/jetstream/session.ts';
import type { Layout } from './layout.ts';
import { isBlob, type ObjectNames } from './names.ts';

/**
 * Of a digest:
 *
 *   (none) ──> here <──> removing ──> gone ──> (none)
 *               ▲                      │
 *               └──────────────────────┘   the same bytes are stored anew
 */
export interface Manifest extends Layout {
  readonly state: 'here' | 'removing' | 'gone';
}

/**
 * Of an upload:
 *
 *   busy ──> kept (cut off) ──> busy …      busy ──> done (its chunks belong to a blob)
 *   busy, kept ──> swept (given up)         swept, done ──> (none)
 *
 * `swept` stays for a while: a process that was paused may still write chunks. It also stands for chunks of a blob that was
 * removed, whose manifest is then to go, too (`hex`).
 */
export interface UploadRecord extends Layout {
  readonly state: 'busy' | 'kept' | 'swept' | 'done';
  readonly hex?: string;
}

export interface Known<T> {
  readonly subject: string;
  readonly value: T;
  /** Of its message. */
  readonly sequence: number;
  readonly time: Date;
}

/** Tells the writer of a message, whose answer was lost, that it is its own. */
interface Marked {
  readonly by: string;
}

export interface Change<T> {
  readonly subject: string;
  readonly value: T;
  /** 0: there must be none. */
  readonly expected: number;
}

type AnyRecord = Manifest | UploadRecord;

const manifestStates: ReadonlySet<unknown> = new Set<Manifest['state']>(['here', 'removing', 'gone']);
const uploadStates: ReadonlySet<unknown> = new Set<UploadRecord['state']>(['busy', 'kept', 'swept', 'done']);

/** The subject decides which of the two it must be. */
function recordIn<T extends AnyRecord>(text: string, subject: string): T {
  const record = parsed(text) as Partial<AnyRecord> | null | undefined;
  const states = isBlob(subject) ? manifestStates : uploadStates;
  const isRecord =
    states.has(record?.state) &&
    typeof record?.upload === 'string' &&
    record.segments?.every(Number.isSafeInteger);
  if (!isRecord)
    throw new TallymanError('LOG_DAMAGED', `the record ${subject} of an object on JetStream cannot be read`);
  return record as T;
}

/** How many records one read brings. */
const page = 256;

export class Records {
  readonly #cluster: JetStreamCluster;
  readonly #names: ObjectNames;

  constructor(cluster: JetStreamCluster, names: ObjectNames) {
    this.#cluster = cluster;
    this.#names = names;
  }

  /** What the leader knows, of a subject or of the last one that a pattern names. */
  async read<T extends AnyRecord>(subject: string): Promise<Known<T> | undefined> {
    const message = await this.#cluster.call((session) => lastOf(session, this.#names, subject));
    return (
      message && {
        subject: message.subject,
        value: recordIn<T>(message.string(), message.subject),
        sequence: message.seq,
        time: message.time,
      }
    );
  }

  /** Everything under a pattern that was written before a time, the oldest first. What is changed meanwhile is left out. */
  async *olderThan<T extends AnyRecord>(pattern: string, time: Date): AsyncIterable<Known<T>> {
    for (let seq = 1; ; ) {
      const found = await this.#cluster.call((session) =>
        nextMessages(session, this.#names, { seq, batch: page, next_by_subj: pattern }, (message) => ({
          subject: message.subject,
          value: recordIn<T>(Buffer.from(message.data).toString(), message.subject),
          sequence: message.seq,
          time: message.time,
        })),
      );
      for (const each of found) {
        // Sequences and times grow together.
        if (each.time >= time) return;
        yield each;
      }
      const last = found.at(-1);
      if (!last || found.length < page) return;
      seq = last.sequence + 1;
    }
  }

  /**
   * Changes one, or several together. Returns the sequence of the first; undefined: something was not as expected, and nothing
   * was written.
   */
  async change(...changes: readonly Change<AnyRecord>[]): Promise<number | undefined> {
    const by = randomUUID();
    const messages = changes.map(
      ({ subject, value, expected }): BatchMessage => ({
        subject,
        payload: JSON.stringify({ ...value, by } satisfies Marked),
        expected,
      }),
    );
    const [first] = messages;
    if (!first) throw new Error('a change is needed');
    const written = await this.#cluster.call((session) =>
      messages.length === 1 ? store(session, first) : commit(session, messages),
    );
    if (written !== conflict) return written;
    // It may be the conflict with an attempt of this call whose answer was lost.
    const now = await this.read<AnyRecord & Partial<Marked>>(first.subject);
    return now?.value.by === by ? now.sequence : undefined;
  }

  /** Forgets what was written under a pattern, up to a sequence if there is one. */
  async purge(filter: string, upTo?: number): Promise<void> {
    const { stream } = this.#names;
    await this.#cluster.call(({ manager }) =>
      manager.streams.purge(stream, upTo === undefined ? { filter } : { filter, seq: upTo + 1 }),
    );
  }
}
