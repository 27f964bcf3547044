import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../../../../engine/errors.ts';
import type { Logger } from '../../../../engine/logger.ts';
import { BoundaryError } from '../../domain/errors.ts';
import { JetStreamCluster, type JetStreamOptions } from '../../store/jetstream/session.ts';
import { ensureStream } from '../../store/jetstream/streams.ts';
import {
  type Blobs,
  hexOf,
  LostBytes,
  objectTooLarge,
  type Staged,
  type StageOptions,
  wrongStart,
} from '../blobs.ts';
import { ChunkWriter, readChunks } from './chunks.ts';
import { countChunks, type Layout, sizeOf } from './layout.ts';
import { lastToken, ObjectNames } from './names.ts';
import { type Known, type Manifest, Records, type UploadRecord } from './records.ts';

/** A blob that is being removed is decided about in a moment; after this time its remover has died, and it is put back. */
const removalMs = 1000;
/** Before what another process is changing is looked at again. */
const pauseMs = 50;
/** An upload says that it goes on at least this often. */
const touchMs = 10_000;
/** An upload that was cut off more often begins anew. */
const mostSegments = 1000;

/**
 * Blobs on a JetStream cluster, for all nodes of a zone. Bytes are written as chunks under the uuid of their upload, which
 * nobody can see; a manifest under the digest makes them visible. Manifest and upload change in one atomic batch, so that
 * chunks that were given up never get a manifest. See docs/decisions/0037.
 */
export class JetStreamBlobs implements Blobs {
  readonly #cluster: JetStreamCluster;
  readonly #names: ObjectNames;
  readonly #records: Records;
  readonly #logger: Logger;

  private constructor(cluster: JetStreamCluster, names: ObjectNames, logger: Logger) {
    this.#cluster = cluster;
    this.#names = names;
    this.#records = new Records(cluster, names);
    this.#logger = logger;
  }

  /** Throws if the cluster cannot be used safely. */
  static async open(
    options: Omit<JetStreamOptions, 'keeps'> & { readonly tenantId: string; readonly zone: string },
  ): Promise<JetStreamBlobs> {
    const cluster = await JetStreamCluster.open({ ...options, keeps: 'objects' });
    const names = new ObjectNames(options);
    try {
      await cluster.call((session) => ensureStream(session, names, options.replicas));
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return new JetStreamBlobs(cluster, names, options.logger);
  }

  get trouble(): string | undefined {
    return this.#cluster.trouble;
  }

  stop(): Promise<void> {
    return this.#cluster.stop();
  }

  async stage(source: AsyncIterable<Uint8Array>, { maxBytes, resume }: StageOptions): Promise<Staged> {
    const upload = await this.#begin(resume);
    const hash = createHash('sha256');
    let size = sizeOf(upload.layout);
    const place = { cluster: this.#cluster, names: this.#names };
    const writer = new ChunkWriter(place, upload.layout.upload, countChunks(upload.layout));
    try {
      for await (const piece of readChunks(place, upload.layout, { from: 0, count: size }))
        hash.update(piece);
      for await (const piece of source) {
        size += piece.length;
        if (size > maxBytes) throw objectTooLarge(maxBytes);
        hash.update(piece);
        await writer.write(piece);
        if (performance.now() - upload.touchedAt > touchMs) await this.#note(upload, 'busy', upload.layout);
      }
      await writer.end();
    } catch (error) {
      await this.#giveUp(upload, writer, error, resume !== undefined);
      throw error;
    }
    const hex = hash.digest('hex');
    const layout = extended(upload.layout, writer.bytes);
    return {
      digest: `sha256:${hex}`,
      size,
      publish: () => this.#publish(upload, layout, hex),
      discard: () => this.#discard(upload),
    };
  }

  async staged(uploadId: string): Promise<number> {
    const last = await this.#records.read<UploadRecord>(this.#names.upload(uploadId, '*'));
    return last?.value.state === 'kept' ? sizeOf(last.value) : 0;
  }

  async *read(
    digest: string,
    range: { readonly from: number; readonly count: number },
  ): AsyncIterable<Uint8Array> {
    const layout = await this.#find(digest);
    yield* readChunks({ cluster: this.#cluster, names: this.#names }, layout, range);
  }

  async has(digest: string): Promise<boolean> {
    return (await this.#manifest(digest))?.value.state === 'here';
  }

  async *olderThan(time: Date): AsyncIterable<string> {
    for await (const { subject, value } of this.#records.olderThan<Manifest>(this.#names.everyBlob, time))
      if (value.state !== 'gone') yield `sha256:${lastToken(subject)}`;
  }

  async remove(digest: string, isNeeded: () => Promise<boolean>): Promise<boolean> {
    const found = await this.#manifest(digest);
    if (!found || found.value.state === 'gone') return false;
    const aside = await this.#set(found, 'removing');
    // Somebody has stored it again, or removes it as well.
    if (!aside) return false;
    let needed = true;
    try {
      needed = await isNeeded();
    } finally {
      if (needed) await this.#set(aside, 'here');
    }
    return !needed && (await this.#delete(aside));
  }

  /** Finishes what a process left behind that died, too. */
  async sweep(before: Date): Promise<number> {
    let swept = 0;
    const { everyUpload } = this.#names;
    for await (const { subject, value, sequence } of this.#records.olderThan<UploadRecord>(
      everyUpload,
      before,
    )) {
      const { state, upload, hex } = value;
      if (state === 'busy' || state === 'kept') {
        const change = { subject, value: { ...value, state: 'swept' as const }, expected: sequence };
        // It goes on after all, or another process has swept it.
        if ((await this.#records.change(change)) === undefined) continue;
        swept += 1;
      }
      if (state !== 'done') await this.#records.purge(this.#names.chunk(upload, '*'));
      if (hex !== undefined) await this.#records.purge(this.#names.blob(hex), sequence - 1);
      if (state === 'done' || state === 'swept') await this.#records.purge(subject, sequence);
    }
    return swept;
  }

  #manifest(digest: string): Promise<Known<Manifest> | undefined> {
    return this.#records.read<Manifest>(this.#names.blob(hexOf(digest)));
  }

  /** Undefined: it has changed meanwhile. */
  async #set(known: Known<Manifest>, state: Manifest['state']): Promise<Known<Manifest> | undefined> {
    const value = { ...known.value, state };
    const sequence = await this.#records.change({ subject: known.subject, value, expected: known.sequence });
    return sequence === undefined ? undefined : { ...known, value, sequence };
  }

  /** Putting back is always safe: a remover that still lives finds that it lost, and removes nothing. */
  async #find(digest: string): Promise<Layout> {
    const putBackAt = performance.now() + removalMs;
    for (;;) {
      const found = await this.#manifest(digest);
      if (!found || found.value.state === 'gone')
        throw new LostBytes(`there are no bytes with the digest ${digest}`);
      if (found.value.state === 'here') return found.value;
      if (performance.now() < putBackAt) await sleep(pauseMs);
      else await this.#set(found, 'here');
    }
  }

  /** The chunks go with a record that names them, so that nothing is left of them if this process dies. */
  async #delete(aside: Known<Manifest>): Promise<boolean> {
    const { subject, value, sequence } = aside;
    const { upload, segments } = value;
    const hex = lastToken(subject);
    const waste = this.#names.removed(upload);
    const gone = await this.#records.change(
      { subject, value: { ...value, state: 'gone' }, expected: sequence },
      { subject: waste, value: { state: 'swept', upload, segments, hex }, expected: 0 },
    );
    if (gone === undefined) return false;
    await this.#tidy('chunks of an object', async () => {
      await this.#records.purge(this.#names.chunk(upload, '*'));
      await this.#records.purge(subject, gone);
      await this.#records.purge(waste);
    });
    return true;
  }

  /** Takes over what was kept of an upload, by changing its record: of two that continue it, one does. */
  async #begin(resume: StageOptions['resume']): Promise<Upload> {
    if (!resume || resume.from === 0) {
      const { subject, upload } = this.#names.newUpload(resume?.uploadId);
      const begun: Upload = { subject, layout: { upload, segments: [] }, sequence: 0, touchedAt: 0 };
      await this.#note(begun, 'busy', begun.layout);
      return begun;
    }
    const { uploadId, from } = resume;
    const last = await this.#records.read<UploadRecord>(this.#names.upload(uploadId, '*'));
    const kept = last?.value.state === 'kept' ? sizeOf(last.value) : 0;
    if (!last || kept !== from) throw wrongStart(resume, kept);
    const { upload, segments } = last.value;
    const taken: Upload = {
      subject: last.subject,
      layout: { upload, segments },
      sequence: last.sequence,
      touchedAt: 0,
    };
    await this.#note(taken, 'busy', taken.layout, () => wrongStart(resume, 0));
    return taken;
  }

  async #note(
    upload: Upload,
    state: UploadRecord['state'],
    layout: Layout,
    lost: () => Error = givenUp,
  ): Promise<void> {
    const { subject, sequence: expected } = upload;
    const sequence = await this.#records.change({ subject, value: { ...layout, state }, expected });
    if (sequence === undefined) throw lost();
    upload.sequence = sequence;
    upload.touchedAt = performance.now();
  }

  /** What has come is kept if its source broke off; what was refused is not. */
  async #giveUp(upload: Upload, writer: ChunkWriter, error: unknown, canGoOn: boolean): Promise<void> {
    const isKept =
      canGoOn && !(error instanceof BoundaryError) && upload.layout.segments.length < mostSegments;
    await this.#tidy('an upload that broke off', async () => {
      try {
        await writer.end();
      } catch {
        // A chunk may still arrive: the record stays, so that it is found.
        return void (await this.#sweepUp(upload));
      }
      if (isKept) await this.#note(upload, 'kept', extended(upload.layout, writer.bytes));
      else await this.#discard(upload);
    });
  }

  async #discard(upload: Upload): Promise<void> {
    if (upload.sequence === 0) return;
    await this.#tidy('an upload', async () => {
      const swept = await this.#sweepUp(upload);
      if (swept !== undefined) await this.#records.purge(upload.subject, swept);
    });
  }

  /** The record first: should the upload have been published after all, its chunks belong to a blob. */
  async #sweepUp({ subject, layout, sequence: expected }: Upload): Promise<number | undefined> {
    const swept = await this.#records.change({ subject, value: { ...layout, state: 'swept' }, expected });
    if (swept !== undefined) await this.#records.purge(this.#names.chunk(layout.upload, '*'));
    return swept;
  }

  /** The same bytes may be there: then they count as new, also if they were just being removed. */
  async #publish(upload: Upload, layout: Layout, hex: string): Promise<void> {
    const subject = this.#names.blob(hex);
    for (;;) {
      const found = await this.#records.read<Manifest>(subject);
      if (found && found.value.state !== 'gone') {
        // An attempt before was stored, and its answer was lost.
        if (found.value.upload === layout.upload) upload.sequence = 0;
        if (await this.#set(found, 'here')) return;
        continue;
      }
      const published = await this.#records.change(
        { subject, value: { ...layout, state: 'here' }, expected: found?.sequence ?? 0 },
        { subject: upload.subject, value: { ...layout, state: 'done' }, expected: upload.sequence },
      );
      if (published !== undefined) {
        upload.sequence = 0;
        await this.#tidy('the record of an upload', () => this.#records.purge(upload.subject, published + 1));
        return;
      }
      const record = await this.#records.read<UploadRecord>(upload.subject);
      if (record?.sequence !== upload.sequence) throw givenUp();
      // Another process was first.
      await sleep(pauseMs);
    }
  }

  /** What cannot be cleared up now is found by a sweep. */
  async #tidy(what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#logger.debug(
        { what, error: messageOf(error) },
        'objects on JetStream: left for the next collection',
      );
    }
  }
}

/** An upload of this process. */
interface Upload {
  readonly subject: string;
  /** What was there before this process went on with it. */
  readonly layout: Layout;
  /** Of its record; 0: there is none (any more). */
  sequence: number;
  touchedAt: number;
}

const extended = ({ upload, segments }: Layout, bytes: number): Layout => ({
  upload,
  segments: bytes > 0 ? [...segments, bytes] : segments,
});

const givenUp = (): BoundaryError =>
  new BoundaryError(
    'ABORTED',
    'upload_given_up',
    'the upload stood still for so long that it was given up; nothing was stored. Send it again from the start.',
  );
