/** Group commit of appends to one store buffer: what arrives while a batch is under way shares the next one. */
import { Batcher } from '../../../../engine/batching/batcher.ts';
import { type Answer, type Appended, answersFor, byKey } from '../../../../engine/log/answers.ts';
import { batchesOf } from '../../../../engine/log/batches.ts';
import type { Prepared } from '../../../../engine/log/entry.ts';
import { type Queued, sendPart } from '../../../../engine/log/sequence.ts';
import { mostMessages } from './commit.ts';
import { isUnavailable } from './errors.ts';
import type { JetStreamCluster } from './session.ts';
import type { Turns } from './turns.ts';
import type { Writer } from './writer.ts';

/** Two messages for each entry, and the head. */
export const mostEntries = Math.floor((mostMessages - 1) / 2);

interface Place {
  readonly offset: number;
  readonly digest: string;
  existing: boolean;
}

export class Appender {
  readonly #cluster: JetStreamCluster;
  readonly #writer: Writer;
  readonly #turns: Turns;
  readonly #onGrown: () => void;
  readonly #batcher: Batcher<Queued, Appended>;
  /** The last batch met ids that were taken, so the next one may: look first. */
  #careful = false;

  constructor(cluster: JetStreamCluster, writer: Writer, turns: Turns, onGrown: () => void) {
    this.#cluster = cluster;
    this.#writer = writer;
    this.#turns = turns;
    this.#onGrown = onGrown;
    // One batch in flight: a second would be refused, since it could not know the head.
    this.#batcher = new Batcher({
      send: (entries) => this.#sendAll(entries),
      maxBatch: mostEntries,
      maxInFlight: 1,
    });
  }

  append(entry: Queued): Promise<Appended> {
    return this.#batcher.add(entry);
  }

  /** Batch after batch, each stored as a whole or not at all; after one that failed nothing more is sent. */
  async appendInOrder(entries: readonly Prepared[]): Promise<void> {
    for (let at = 0; at < entries.length; at += mostEntries)
      for (const batch of batchesOf(entries.slice(at, at + mostEntries))) {
        const answers = await this.#writer.alone(() => this.#send(batch));
        this.#onGrown();
        const failure = answers.find((answer) => answer instanceof Error);
        if (failure) throw failure;
      }
  }

  async #sendAll(entries: Queued[]): Promise<Answer[]> {
    const answers: Answer[] = [];
    for (const batch of batchesOf(entries))
      answers.push(...(await sendPart(batch, (part) => this.#writer.alone(() => this.#send(part)))));
    this.#onGrown();
    return answers;
  }

  /**
   * Tries until each entry has its place. That is safe whatever became of an attempt before: if its batch was stored after all,
   * its keys are there, and it can no longer be stored once a later batch has moved the head.
   */
  async #send(entries: Prepared[]): Promise<Answer[]> {
    const writer = this.#writer;
    const { distinct, indexOf } = byKey(entries);
    const places: (Place | undefined)[] = distinct.map(() => undefined);
    const waitToRetry = this.#cluster.retryUntilDeadline();
    const noteConflict = writer.watchConflicts();
    let mustLook = this.#careful;
    for (let failures = 0; ; ) {
      try {
        const session = await writer.session();
        if (mustLook) {
          const found = await writer.keys(session, distinct);
          found.forEach((place, i) => {
            if (place) places[i] ??= { offset: place.offset, digest: place.digest, existing: true };
          });
          this.#careful = found.some((place) => place !== undefined);
        }
        const missing = distinct.flatMap((entry, i) => (places[i] ? [] : [{ entry, i }]));
        if (missing.length === 0) break;
        const known = await writer.head(session);
        const outcome = await writer.append(
          session,
          known,
          missing.map(({ entry }) => entry),
        );
        if (outcome === 'done') {
          missing.forEach(({ entry, i }, n) => {
            places[i] = { offset: known.head.last + 1 + n, digest: entry.digest, existing: false };
          });
          break;
        }
        noteConflict(outcome === 'key-taken' && mustLook);
        mustLook = outcome === 'key-taken' || failures > 2;
        await this.#turns.again(failures++);
      } catch (error) {
        writer.forget();
        // Also what was sent and got no answer is looked for before it is sent again.
        mustLook = true;
        const failure = isUnavailable(error)
          ? await waitToRetry(error).then(() => undefined, asError)
          : asError(error);
        if (failure) return this.#answersBefore(failure, entries, indexOf, places);
      }
    }
    return answersFor(
      writer.names.stream,
      entries,
      indexOf,
      places.filter((place) => place !== undefined),
    );
  }

  /** What was found has its answer; the others get the failure. */
  #answersBefore(
    failure: Error,
    entries: readonly Prepared[],
    indexOf: ReadonlyMap<string, number>,
    places: readonly (Place | undefined)[],
  ): Answer[] {
    return entries.map((entry) => {
      const place = places[indexOf.get(entry.key) ?? -1];
      if (!place) return failure;
      const [answer] = answersFor(this.#writer.names.stream, [entry], new Map([[entry.key, 0]]), [place]);
      return answer ?? failure;
    });
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));
