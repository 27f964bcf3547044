/** Changes of one boundary stream: made one after another in this process, checked by the server against other processes. */
import { TallymanError } from '../../../../engine/errors.ts';
import type { Prepared } from '../../../../engine/log/entry.ts';
import { Semaphore } from '../../../../engine/resilience/semaphore.ts';
import type { Frontier } from '../../domain/delivery.ts';
import type { StreamId } from '../store.ts';
import { commit, conflict } from './commit.ts';
import { appending, headMessage, type KeyOnServer } from './entries.ts';
import { isUnavailable } from './errors.ts';
import { type Head, type KnownHead, newHead } from './head.ts';
import { Names, streamKey } from './names.ts';
import { readHead, readKey } from './reads.ts';
import type { JetStreamCluster, JetStreamSession } from './session.ts';
import { ensureStream } from './streams.ts';
import type { Turns } from './turns.ts';

/** How long a batch of another process may be on its way. */
const unexplainedMs = 15_000;

export type Outcome = 'done' | 'head-moved' | 'key-taken';

export class Writer {
  readonly names: Names;
  readonly key: string;
  readonly to: string;
  readonly #cluster: JetStreamCluster;
  readonly #turns: Turns;
  readonly #one = new Semaphore(1);
  /** The head after the last change that this process made; undefined: read it. */
  #known: KnownHead | undefined;
  #ensuredIn: JetStreamSession | undefined;

  constructor(cluster: JetStreamCluster, turns: Turns, stream: StreamId) {
    this.#cluster = cluster;
    this.#turns = turns;
    this.names = new Names(stream);
    this.to = stream.to;
    this.key = streamKey(this.names.head(stream.to));
  }

  /** Runs changes one after another: two of one process would only refuse each other. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    return this.#one.run(work);
  }

  /** The stream on the server, there and checked once for each connection. */
  async session(): Promise<JetStreamSession> {
    const { session } = this.#cluster;
    if (this.#ensuredIn !== session) {
      this.#known = undefined;
      await ensureStream(session, this.names, this.#cluster.replicas);
      this.#ensuredIn = session;
    }
    return session;
  }

  async head(session: JetStreamSession): Promise<KnownHead> {
    await this.#turns.next(this.key);
    if (this.#turns.isContended(this.key)) this.#known = undefined;
    this.#known ??= (await readHead(session, this.names, this.to)) ?? { head: newHead(), sequence: 0 };
    return this.#known;
  }

  /** Appends entries behind a head. `key-taken`: the head has not moved, so a key must be the reason. */
  async append(
    session: JetStreamSession,
    known: KnownHead,
    entries: readonly Prepared[],
    source?: Frontier,
  ): Promise<Outcome> {
    const { head, messages } = appending(this.names, this.to, known, entries, source);
    return this.#commit(session, known, head, messages);
  }

  replaceHead(session: JetStreamSession, known: KnownHead, head: Head): Promise<Outcome> {
    return this.#commit(session, known, head, [headMessage(this.names, this.to, head, known.sequence)]);
  }

  /**
   * Changes the head until it is done. Undefined from `change`: nothing is to be done. An outcome that is uncertain is resolved
   * by looking at the head again.
   */
  change(
    change: (head: Head, sequence: number) => Promise<Head | undefined>,
  ): Promise<KnownHead | undefined> {
    return this.alone(async () => {
      const waitToRetry = this.#cluster.retryUntilDeadline();
      for (let failures = 0; ; failures += 1) {
        try {
          const session = await this.session();
          const known = await this.head(session);
          const head = await change(known.head, known.sequence);
          if (!head) return undefined;
          if ((await this.replaceHead(session, known, head)) === 'done') return this.#known;
          await this.#turns.again(failures);
        } catch (error) {
          this.#known = undefined;
          if (!isUnavailable(error)) throw error;
          await waitToRetry(error);
        }
      }
    });
  }

  /** Where these keys are, in their order. */
  keys(session: JetStreamSession, entries: readonly Prepared[]): Promise<(KeyOnServer | undefined)[]> {
    return Promise.all(
      entries.map(({ keyHash }) => readKey(session, this.names, this.names.keyOfHash(keyHash))),
    );
  }

  /**
   * Watches for conflicts that neither the head nor a key explains. Call the returned function after each attempt. A batch of another
   * process may be on its way, so it throws only when they last: there are entries behind the head then.
   */
  watchConflicts(): (isUnexplained: boolean) => void {
    let since: number | undefined;
    return (isUnexplained) => {
      since = isUnexplained ? (since ?? performance.now()) : undefined;
      if (since === undefined || performance.now() - since < unexplainedMs) return;
      const { stream } = this.names;
      throw new TallymanError(
        'LOG_DAMAGED',
        `JetStream stream ${stream} has facts to zone "${this.to}" behind the offset that its message ${this.names.head(this.to)} ` +
          'says, or that message is lost. Nothing was written. Restore the streams from a backup, then run: tallyman zones reconcile',
      );
    };
  }

  /** The head is not what it was, as far as this process can tell. */
  forget(): void {
    this.#known = undefined;
  }

  async #commit(
    session: JetStreamSession,
    known: KnownHead,
    head: Head,
    messages: Parameters<typeof commit>[1],
  ): Promise<Outcome> {
    this.#known = undefined;
    const sequence = await commit(session, messages);
    if (sequence !== conflict) {
      this.#known = { head, sequence };
      this.#turns.noteAppended(this.key);
      session.connection.publish(this.names.grown(this.to));
      return 'done';
    }
    const now = await readHead(session, this.names, this.to);
    return (now?.sequence ?? 0) === known.sequence ? 'key-taken' : 'head-moved';
  }
}
