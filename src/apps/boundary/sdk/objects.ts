/** Objects over the wire, in bounded memory whatever their size. */
import { createReadStream } from 'node:fs';
import { Code, ConnectError } from '@connectrpc/connect';
import type { ObjectReference } from '../domain/object-reference.ts';
import { callError } from './call-error.ts';
import type { NodeClient } from './connection.ts';

/** The path of a file, the bytes themselves, or a stream of them. A stream can be read once only: it is not sent again. */
export type ObjectSource = { readonly file: string } | Uint8Array | AsyncIterable<Uint8Array>;

export interface StoredObject {
  /** `sha256:` and 64 hex digits. */
  readonly digest: string;
  readonly size: number;
}

export interface PutOptions {
  /** If the bytes are others, the node refuses them. */
  readonly digest?: string;
  readonly mediaType?: string;
  readonly signal?: AbortSignal;
}

const partBytes = 256 * 1024;
/** An upload may take any time, but not stand still for this long. */
const stallMs = 60_000;

export const canBeReadAgain = (source: ObjectSource): boolean =>
  source instanceof Uint8Array || 'file' in source;

/** Resolves when the object is durable on the node. The same name and bytes again give the same answer. */
export async function putObject(
  client: NodeClient,
  { bucket, key }: { readonly bucket: string; readonly key: string },
  source: ObjectSource,
  { digest = '', mediaType = '', signal }: PutOptions = {},
): Promise<StoredObject> {
  const stall = new StallTimer();
  async function* parts() {
    yield { part: { case: 'header' as const, value: { bucket, key, digest, mediaType } } };
    for await (const data of bytesOf(source)) {
      stall.restart();
      yield { part: { case: 'data' as const, value: data } };
    }
    stall.restart();
  }
  try {
    const answer = await client.putObject(parts(), {
      timeoutMs: 0,
      signal: signal ? AbortSignal.any([signal, stall.signal]) : stall.signal,
    });
    return { digest: answer.digest, size: Number(answer.size) };
  } finally {
    stall.end();
  }
}

/** The bytes of an object. They were checked against the digest if the stream ends without an error. */
export async function* readObject(
  client: NodeClient,
  { bucket, key }: Pick<ObjectReference, 'bucket' | 'key'>,
  signal?: AbortSignal,
): AsyncIterable<Uint8Array> {
  const stall = new StallTimer();
  try {
    const parts = client.getObject(
      { bucket, key },
      { timeoutMs: 0, signal: signal ? AbortSignal.any([signal, stall.signal]) : stall.signal },
    );
    for await (const { part } of parts) {
      if (part.case !== 'data') continue;
      // How long the reader takes is its own business.
      stall.end();
      yield part.value;
      stall.restart();
    }
  } catch (error) {
    throw callError(error);
  } finally {
    stall.end();
  }
}

async function* bytesOf(source: ObjectSource): AsyncIterable<Uint8Array> {
  if (source instanceof Uint8Array) {
    for (let at = 0; at < source.length; at += partBytes) yield source.subarray(at, at + partBytes);
    return;
  }
  const chunks: AsyncIterable<Uint8Array> =
    'file' in source ? createReadStream(source.file, { highWaterMark: partBytes }) : source;
  // The node takes up to 1 MiB in one part.
  for await (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += partBytes) yield chunk.subarray(at, at + partBytes);
}

class StallTimer {
  readonly #stalled = new AbortController();
  #timer: NodeJS.Timeout | undefined;

  constructor() {
    this.restart();
  }

  get signal(): AbortSignal {
    return this.#stalled.signal;
  }

  restart(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => this.#stalled.abort(new ConnectError('the transfer stands still', Code.DeadlineExceeded)),
      stallMs,
    );
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
