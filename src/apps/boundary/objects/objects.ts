/** Objects: bytes with a name, stored once and never changed; facts may name them. */
import { createHash, hash } from 'node:crypto';
import { Batcher } from '../../../engine/batching/batcher.ts';
import type { Database } from '../../../engine/database/database.ts';
import { BoundaryError } from '../domain/errors.ts';
import { requireBucket, requireDigest, requireObjectKey } from '../domain/object-reference.ts';
import { requireToken } from '../domain/text.ts';
import { type BlobInfo, type Blobs, LostBytes } from './blobs.ts';
import type { Hold, ObjectInfo, ObjectName } from './names.ts';
import * as names from './names.ts';

export interface PutOptions {
  /** Other bytes are refused, and nothing is stored. */
  readonly digest?: string | undefined;
  readonly mediaType?: string | undefined;
  /** Continues an upload that broke off, with the bytes from here on; `digest` is needed then. Default 0: from the start. */
  readonly from?: number;
  /** How many bytes come, if that is known: without room for them none is written. */
  readonly size?: number | undefined;
}

export interface GetRange {
  /** Default 0. */
  readonly from?: number;
  /** Default: to the end. */
  readonly count?: number | undefined;
}

export interface ObjectsOptions {
  readonly database: Database;
  readonly blobs: Blobs;
  readonly maxBytes: number;
  /** Bytes that may still be written. Default: the storage says itself when it is full. */
  readonly room?: () => Promise<number>;
}

/** Free space is looked at again after so many bytes: other uploads and facts take it as well. */
const lookAfterBytes = 8 * 1024 * 1024;

export class Objects {
  readonly #database: Database;
  readonly #blobs: Blobs;
  readonly #maxBytes: number;
  readonly #room: ObjectsOptions['room'];
  readonly #holds: Batcher<Hold, string | null>;

  constructor({ database, blobs, maxBytes, room }: ObjectsOptions) {
    this.#database = database;
    this.#blobs = blobs;
    this.#maxBytes = maxBytes;
    this.#room = room;
    this.#holds = new Batcher({
      send: async (holds) => (await names.hold(database, holds)).map((digest) => digest ?? null),
      maxBatch: 1000,
      maxInFlight: 2,
    });
  }

  /** A larger object is refused. */
  get maxBytes(): number {
    return this.#maxBytes;
  }

  /**
   * Resolves when bytes and name are durable. The same name and bytes again give the same answer. RESOURCE_EXHAUSTED (disk_full) if
   * they would take space that must be left free; nothing of them is kept then.
   */
  async put(
    name: ObjectName,
    source: AsyncIterable<Uint8Array>,
    { digest, mediaType, from = 0, size = 1 }: PutOptions = {},
  ): Promise<BlobInfo> {
    checkName(name);
    if (digest !== undefined) requireDigest(digest, 'digest');
    else if (from > 0) throw resumeNeedsDigest();
    if (mediaType !== undefined) requireToken(mediaType, 'media_type', 256);
    await this.#requireRoom(name, size);
    const staged = await this.#blobs.stage(this.#whileRoom(name, source), {
      maxBytes: this.#maxBytes,
      resume: { uploadId: uploadIdOf(name), from },
    });
    try {
      if (digest !== undefined && digest !== staged.digest)
        throw new BoundaryError(
          'INVALID_ARGUMENT',
          'digest_mismatch',
          `the bytes of ${describeObject(name)} have the digest ${staged.digest}, not ${digest}; nothing was stored`,
        );
      const info = { digest: staged.digest, size: staged.size, mediaType };
      await this.#database.transaction(async (tx) => {
        // From here to the commit nobody removes these bytes.
        await names.lockBytes(tx, staged.digest, 'shared');
        if (!(await names.add(tx, name, info))) throw otherBytes(name, await names.find(tx, name));
        await staged.publish();
      });
      return { digest: staged.digest, size: staged.size };
    } finally {
      await staged.discard();
    }
  }

  async *#whileRoom(name: ObjectName, source: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    let unseen = 0;
    for await (const chunk of source) {
      unseen += chunk.length;
      if (unseen >= lookAfterBytes) {
        await this.#requireRoom(name, unseen);
        unseen = 0;
      }
      yield chunk;
    }
  }

  async #requireRoom(name: ObjectName, bytes: number): Promise<void> {
    const room = (await this.#room?.()) ?? bytes;
    if (room < bytes)
      throw new BoundaryError(
        'RESOURCE_EXHAUSTED',
        'disk_full',
        `${describeObject(name)} would take space that boundary.limits.reserveBytes leaves free: the disk has room for ` +
          `${Math.max(0, room)} bytes beyond it, and ${bytes} come; nothing was stored. Put it again when there is room.`,
        { details: { room: Math.max(0, room), bytes } },
      );
  }

  /** How many bytes of an upload that broke off are kept: `put` can go on there. */
  async resumable(name: ObjectName): Promise<number> {
    checkName(name);
    return this.#blobs.staged(uploadIdOf(name));
  }

  /** Undefined: it is not stored. */
  async find(name: ObjectName): Promise<ObjectInfo | undefined> {
    checkName(name);
    return names.find(this.#database, name);
  }

  async info(name: ObjectName): Promise<ObjectInfo> {
    const info = await this.find(name);
    if (!info)
      throw new BoundaryError('NOT_FOUND', 'no_such_object', `${describeObject(name)} is not stored`);
    return info;
  }

  /** Whether a fact names it: one that goes to this zone, or any at all. Throws NOT_FOUND if it is not stored. */
  async isNamed(name: ObjectName, { sentTo }: { readonly sentTo?: string } = {}): Promise<boolean> {
    checkName(name);
    if (await names.isHeld(this.#database, name, sentTo)) return true;
    await this.info(name);
    return false;
  }

  /**
   * The bytes, or some of them. A whole object is compared with its digest. The stream fails with DATA_LOSS (object_lost) if it differs,
   * or bytes are missing.
   */
  async get(
    name: ObjectName,
    { from = 0, count }: GetRange = {},
  ): Promise<{ readonly info: ObjectInfo; readonly bytes: AsyncIterable<Uint8Array> }> {
    const info = await this.info(name);
    if (!Number.isSafeInteger(from) || from < 0 || from > info.size || (count !== undefined && !(count >= 0)))
      throw new BoundaryError(
        'OUT_OF_RANGE',
        'no_such_range',
        `${describeObject(name)} has ${info.size} bytes; bytes from ${from} on were asked for`,
      );
    const length = Math.min(count ?? info.size, info.size - from);
    const bytes = this.#blobs.read(info.digest, { from, count: length });
    return { info, bytes: verified(bytes, { info, name, length }) };
  }

  /**
   * Before a fact is appended that names an object: makes sure that it is stored, and keeps it. FAILED_PRECONDITION if it is
   * not stored, or under another digest.
   */
  async hold(hold: Hold): Promise<void> {
    const stored = await this.#holds.add(hold);
    if (stored === hold.digest) return;
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      stored ? 'object_differs' : 'object_not_stored',
      `fact "${hold.messageId}" names ${describeObject(hold)} with the digest ${hold.digest}, ` +
        (stored ? `but it is stored with ${stored}` : 'which is not stored here: put it first'),
    );
  }
}

function checkName({ bucket, key }: ObjectName): void {
  requireBucket(bucket, 'bucket');
  requireObjectKey(key, 'key');
}

/** One upload of a name at a time can be continued. */
const uploadIdOf = ({ tenantId, bucket, key }: ObjectName): string =>
  hash('sha256', JSON.stringify([tenantId, bucket, key]));

/** For errors. */
export const describeObject = ({ bucket, key }: ObjectName): string =>
  `object "${key}" in bucket "${bucket}"`;

async function* verified(
  bytes: AsyncIterable<Uint8Array>,
  { info, name, length }: { readonly info: ObjectInfo; readonly name: ObjectName; readonly length: number },
): AsyncIterable<Uint8Array> {
  const sum = createHash('sha256');
  let read = 0;
  try {
    for await (const chunk of bytes) {
      if (length === info.size) sum.update(chunk);
      read += chunk.length;
      yield chunk;
    }
  } catch (error) {
    throw error instanceof LostBytes ? objectLost(name, info, error.message) : error;
  }
  if (read !== length) throw objectLost(name, info, `${length - read} of its bytes are missing`);
  if (length === info.size && `sha256:${sum.digest('hex')}` !== info.digest)
    throw objectLost(name, info, 'its stored bytes are damaged');
}

/** If the error says that the bytes of an object are lost: why. */
export const lossIn = (error: unknown): string | undefined =>
  error instanceof BoundaryError && error.reason === 'object_lost' ? error.message : undefined;

const objectLost = (name: ObjectName, { digest }: ObjectInfo, why: string): BoundaryError =>
  new BoundaryError(
    'DATA_LOSS',
    'object_lost',
    `${describeObject(name)} cannot be read: ${why}. Put it again with the same bytes, ${digest}.`,
  );

const otherBytes = (name: ObjectName, stored: ObjectInfo | undefined): BoundaryError =>
  new BoundaryError(
    'ALREADY_EXISTS',
    'conflicting_object',
    `${describeObject(name)} is stored with other bytes (${stored?.digest}). An object never changes: use another key.`,
  );

const resumeNeedsDigest = (): BoundaryError =>
  new BoundaryError(
    'INVALID_ARGUMENT',
    'digest_needed',
    'an upload can only be continued with the digest of the whole object: otherwise parts of two could be mixed',
  );
