import type { FastifyInstance } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';
import type { Upload } from '../../host/route.ts';

/** How much memory the bodies of uploads may take at once, in this process. */
export class UploadMemory {
  readonly #maxBytes: number;
  #takenBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Takes some of it, if there is enough left, or if nothing else is under way. */
  take(bytes: number): boolean {
    if (this.#takenBytes > 0 && this.#takenBytes + bytes > this.#maxBytes) return false;
    this.#takenBytes += bytes;
    return true;
  }

  give(bytes: number): void {
    this.#takenBytes -= bytes;
  }
}

/** Keeps bodies of these types as bytes, up to the limit of the route. */
export function acceptUploads(app: FastifyInstance, { types, maxBytes }: Upload, memory: UploadMemory): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser([...types], { parseAs: 'buffer', bodyLimit: maxBytes }, (_, bytes, done) =>
    done(null, bytes),
  );
  // After the caller is known, before the body is read.
  app.addHook('preParsing', async (request, reply, payload) => {
    const declared = Number(request.headers['content-length'] ?? maxBytes);
    const bytes = Math.min(Number.isSafeInteger(declared) ? declared : maxBytes, maxBytes);
    if (!memory.take(bytes))
      throw new TallymanError('UPLOADS_BUSY', 'too many uploads at once; try again in a moment');
    reply.raw.once('close', () => memory.give(bytes));
    return payload;
  });
}
