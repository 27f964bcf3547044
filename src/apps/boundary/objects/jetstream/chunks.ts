/** The bytes themselves, in messages that are written once. No more than a few chunks are in memory, whatever the size. */
import type { StoredMsg } from '@nats-io/jetstream';
import { conflict, store } from '../../store/jetstream/commit.ts';
import { ClusterUnavailable } from '../../store/jetstream/errors.ts';
import { lastOf } from '../../store/jetstream/reads.ts';
import type { JetStreamCluster, JetStreamSession } from '../../store/jetstream/session.ts';
import { chunkBytes, type Layout, type Slice, slicesOf } from './layout.ts';
import type { ObjectNames } from './names.ts';

/** Chunks that are written, or read ahead, at the same time. */
const window = 4;

interface Place {
  readonly cluster: JetStreamCluster;
  readonly names: ObjectNames;
}

/** Writes a segment of an upload. */
export class ChunkWriter {
  readonly #place: Place;
  readonly #upload: string;
  #next: number;
  #buffer: Buffer = Buffer.alloc(0);
  /** Of chunks that are durable: with a new one for each the process would grow until the next collection of garbage. */
  readonly #free: Buffer[] = [];
  #filled = 0;
  #bytes = 0;
  /** Under way, the oldest first. They never reject: the first error is kept. */
  readonly #writing: Promise<void>[] = [];
  #failure: { readonly error: unknown } | undefined;

  constructor(place: Place, upload: string, firstChunk: number) {
    this.#place = place;
    this.#upload = upload;
    this.#next = firstChunk;
  }

  /** What was given to it. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Resolves when there is room for more. */
  async write(piece: Uint8Array): Promise<void> {
    for (let at = 0; at < piece.length; ) {
      if (this.#filled === 0) this.#buffer = this.#free.pop() ?? Buffer.allocUnsafeSlow(chunkBytes);
      const part = piece.subarray(at, at + chunkBytes - this.#filled);
      this.#buffer.set(part, this.#filled);
      this.#filled += part.length;
      at += part.length;
      if (this.#filled === chunkBytes) await this.#send();
    }
    this.#bytes += piece.length;
  }

  /** Resolves when everything is durable. */
  async end(): Promise<void> {
    if (this.#filled > 0) await this.#send();
    await Promise.all(this.#writing);
    this.#throwIfFailed();
  }

  async #send(): Promise<void> {
    const buffer = this.#buffer;
    const bytes = buffer.subarray(0, this.#filled);
    const subject = this.#place.names.chunk(this.#upload, this.#next);
    this.#next += 1;
    this.#filled = 0;
    this.#writing.push(
      writeOnce(this.#place, subject, bytes).then(
        () => void this.#free.push(buffer),
        (error: unknown) => {
          this.#failure ??= { error };
        },
      ),
    );
    if (this.#writing.length >= window) await this.#writing.shift();
    this.#throwIfFailed();
  }

  #throwIfFailed(): void {
    if (this.#failure) throw this.#failure.error;
  }
}

/** Only one process writes a subject, so that what is there already is an attempt whose answer was lost. */
async function writeOnce({ cluster, names }: Place, subject: string, bytes: Uint8Array): Promise<void> {
  await cluster.call(async (session) => {
    if ((await store(session, { subject, payload: bytes, expected: 0 })) !== conflict) return;
    // It may be on its way and never get there.
    if (!(await lastOf(session, names, subject)))
      throw new ClusterUnavailable('a chunk was refused, and is not there', { isUncertain: true });
  });
}

/** The bytes of a range. Reads ahead, so that the way to the server costs little. */
export async function* readChunks(
  place: Place,
  layout: Layout,
  range: { readonly from: number; readonly count: number },
): AsyncIterable<Uint8Array> {
  const slices = slicesOf(layout, range);
  const ahead: Promise<Uint8Array>[] = [];
  const readNext = (): void => {
    const next = slices.next();
    if (next.done) return;
    const reading = readSlice(place, layout, next.value);
    // A reader that leaves does not wait for it.
    reading.catch(() => {});
    ahead.push(reading);
  };
  for (let n = 0; n < window; n += 1) readNext();
  for (let first = ahead.shift(); first; first = ahead.shift()) {
    const bytes = await first;
    readNext();
    yield bytes;
  }
}

async function readSlice(
  { cluster, names }: Place,
  { upload }: Layout,
  { chunk, from, to }: Slice,
): Promise<Uint8Array> {
  const subject = names.chunk(upload, chunk);
  const data = await cluster.call((session) => chunkOn(session, names, subject));
  if (!data || data.length < to)
    throw new Error(`chunk ${chunk} of upload ${upload} is not on the JetStream cluster, or not whole`);
  return data.subarray(from, to);
}

/** From any replica; one that is behind does not know it yet, and the leader does. */
async function chunkOn(
  session: JetStreamSession,
  names: ObjectNames,
  subject: string,
): Promise<Uint8Array | undefined> {
  const direct = await session.manager.direct.getMessage(names.stream, { last_by_subj: subject });
  if (direct) return direct.data;
  const message: StoredMsg | undefined = await lastOf(session, names, subject);
  return message?.data;
}
