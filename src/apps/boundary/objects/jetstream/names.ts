/**
 * Names on the cluster. A node has one JetStream stream for its objects:
 *
 *   blob.<sha256>               a manifest: where the bytes of a digest are
 *   upload.<upload id>.<uuid>   what is known of an upload; gone once its chunks belong to a blob, or are purged
 *   chunk.<uuid>.<n>            bytes of the upload of this uuid; written once
 *
 * The zone and the tenant are in all of them, so that nodes with databases of their own can use one cluster.
 */
import { randomUUID } from 'node:crypto';
import { tokenOf } from '../../store/jetstream/names.ts';

/** Stand for the upload id: of what nobody can continue, and of chunks of a blob that was removed. */
const nobody = '-';
const removed = 'removed';

export class ObjectNames {
  readonly stream: string;
  readonly subjects: readonly string[];
  readonly #root: string;

  constructor({ tenantId, zone }: { readonly tenantId: string; readonly zone: string }) {
    this.stream = `tallyman_${tokenOf(tenantId)}_objects_${zone}`;
    this.#root = `tallyman.objects.${tokenOf(tenantId)}.${zone}`;
    this.subjects = [`${this.#root}.blob.*`, this.everyUpload, `${this.#root}.chunk.*.*`];
  }

  get everyBlob(): string {
    return this.blob('*');
  }

  get everyUpload(): string {
    return this.upload('*', '*');
  }

  blob(hex: string): string {
    return `${this.#root}.blob.${hex}`;
  }

  upload(uploadId: string | undefined, uuid: string): string {
    return `${this.#root}.upload.${uploadId ?? nobody}.${uuid}`;
  }

  /** Apart from the record of the upload that has brought them: that may still be there. */
  removed(uuid: string): string {
    return this.upload(removed, uuid);
  }

  newUpload(uploadId: string | undefined): { readonly subject: string; readonly upload: string } {
    const upload = randomUUID();
    return { subject: this.upload(uploadId, upload), upload };
  }

  chunk(upload: string, n: number | '*'): string {
    return `${this.#root}.chunk.${upload}.${n}`;
  }
}

/** Whether the subject is that of a manifest. */
export const isBlob = (subject: string): boolean => subject.split('.').at(-2) === 'blob';

/** The last token of a subject. */
export const lastToken = (subject: string): string => subject.slice(subject.lastIndexOf('.') + 1);
