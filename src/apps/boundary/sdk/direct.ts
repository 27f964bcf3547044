/**
 * A producer without an outbox: each call goes to the node at once, and what does not get through is the caller's. For
 * programs that have a durable queue of their own; all others use `OutboxProducer`.
 */
import type { ObjectReference } from '../domain/object-reference.ts';
import { callError } from './call-error.ts';
import { Connection, type ConnectionOptions, type TlsOptions } from './connection.ts';
import { type Attachment, appendRequest, type ProducerFact, prepareFact } from './fact.ts';
import type { MessageIdRule } from './message-id.ts';
import {
  canBeReadAgain,
  type ObjectSource,
  type PutOptions,
  putObject,
  type StoredObject,
} from './objects.ts';
import { type RetryOptions, withRetries } from './retry.ts';

export interface DirectProducerOptions extends ConnectionOptions {
  /** The zone of this producer. */
  readonly fromZone: string;
  /** For facts that come without an id. */
  readonly messageId?: MessageIdRule;
  readonly retry?: RetryOptions;
}

export interface AppendedFact {
  readonly messageId: string;
  readonly offset: number;
  /** The fact was there already; the offset is its first. */
  readonly existing: boolean;
}

export interface FoundFact {
  readonly offset: number;
  readonly toZone: string;
}

export class DirectProducer {
  readonly #options: DirectProducerOptions;
  readonly #connection: Connection;

  constructor(options: DirectProducerOptions) {
    this.#options = options;
    this.#connection = new Connection(options);
  }

  /**
   * Stores the attachment, if there is one, then appends the fact. Resolves when it is durable in this zone. If it rejects with
   * `mayPass`, nobody knows whether the fact is in: call it again with the same fact, or ask `find`.
   */
  async append(fact: ProducerFact, signal?: AbortSignal): Promise<AppendedFact> {
    const { fromZone, messageId: rule } = this.#options;
    const stored = fact.attachment && (await this.#store(fact.attachment, signal));
    const { input } = prepareFact(fact, { fromZone, rule, stored });
    const request = appendRequest(input);
    const { offset, existing } = await this.#retried(
      () => this.#connection.client.appendFact(request, callOptions(signal)),
      signal,
    );
    return { messageId: input.messageId, offset: Number(offset), existing };
  }

  /** Resolves when the object is durable. The same name and bytes again give the same answer, other bytes are refused. */
  async putObject(
    bucket: string,
    key: string,
    source: ObjectSource,
    options: PutOptions = {},
  ): Promise<StoredObject> {
    const put = () => putObject(this.#connection.client, { bucket, key }, source, options);
    if (canBeReadAgain(source)) return this.#retried(put, options.signal);
    return put().catch((error: unknown) => Promise.reject(callError(error)));
  }

  /** Where a fact of this zone is. Undefined: it was never appended. */
  async find(messageId: string, signal?: AbortSignal): Promise<FoundFact | undefined> {
    const { fromZone } = this.#options;
    try {
      const { offset, stream } = await this.#retried(
        () => this.#connection.client.findFact({ fromZone, messageId }, callOptions(signal)),
        signal,
      );
      return { offset: Number(offset), toZone: stream?.toZone ?? '' };
    } catch (error) {
      if (callError(error).reason === 'no_such_fact') return undefined;
      throw error;
    }
  }

  renewCertificates(tls: TlsOptions): void {
    this.#connection.renew(tls);
  }

  close(): void {
    this.#connection.close();
  }

  async #store(attachment: Attachment, signal: AbortSignal | undefined): Promise<ObjectReference> {
    const { bucket, key, source, mediaType, fileName } = attachment;
    const options = { ...(mediaType !== undefined && { mediaType }), ...(signal && { signal }) };
    const { digest, size } = await this.putObject(bucket, key, source, options);
    return referenceTo({ bucket, key, mediaType, fileName }, { digest, size });
  }

  #retried<T>(work: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    return withRetries(work, this.#options.retry, signal);
  }
}

const callOptions = (signal: AbortSignal | undefined) => (signal ? { signal } : {});

export const referenceTo = (
  {
    bucket,
    key,
    mediaType,
    fileName,
  }: {
    readonly bucket: string;
    readonly key: string;
    readonly mediaType: string | undefined;
    readonly fileName: string | undefined;
  },
  { digest, size }: StoredObject,
): ObjectReference => ({
  bucket,
  key,
  digest,
  size,
  ...(mediaType !== undefined && { mediaType }),
  ...(fileName !== undefined && { fileName }),
});
