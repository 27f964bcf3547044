import type { FastifyInstance } from 'fastify';
import { TallymanError } from '../../engine/errors.ts';
import type { Upload } from '../../host/route.ts';
import type { HeavyRequests } from '../access/heavy-requests.ts';
import { inTurn } from './body.ts';

/**
 * How much memory the bodies of uploads may take at once, in this process. A tenant takes no more than it leaves free for
 * others: alone at most half of it, beside another one a third.
 */
export class UploadMemory {
  readonly #maxBytes: number;
  #takenBytes = 0;
  readonly #takenBy = new Map<string, number>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Takes some of it, if there is enough left. A tenant's only upload may take all that is left; the only one of all, more. */
  take(tenantId: string, bytes: number): boolean {
    const own = this.#takenBy.get(tenantId) ?? 0;
    const left = this.#maxBytes - this.#takenBytes - bytes;
    if (left < 0 && this.#takenBytes > 0) return false;
    if (own > 0 && own + bytes > left) return false;
    this.#takenBytes += bytes;
    this.#takenBy.set(tenantId, own + bytes);
    return true;
  }

  give(tenantId: string, bytes: number): void {
    this.#takenBytes -= bytes;
    const own = (this.#takenBy.get(tenantId) ?? 0) - bytes;
    if (own > 0) this.#takenBy.set(tenantId, own);
    else this.#takenBy.delete(tenantId);
  }
}

/** Keeps bodies of these types as bytes, up to the limit of the route. Large ones take turns, as other large bodies do. */
export function acceptUploads(
  app: FastifyInstance,
  { types, maxBytes }: Upload,
  { uploads: memory, heavy }: { readonly uploads: UploadMemory; readonly heavy: HeavyRequests },
): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser([...types], { parseAs: 'buffer', bodyLimit: maxBytes }, (request, bytes, done) =>
    inTurn(heavy, request, bytes.length, done, (answer) => answer(null, bytes)),
  );
  // After the caller is known, before the body is read.
  app.addHook('preParsing', async (request, reply, payload) => {
    const declared = Number(request.headers['content-length'] ?? maxBytes);
    const bytes = Math.min(Number.isSafeInteger(declared) ? declared : maxBytes, maxBytes);
    // Callers without a key share what one tenant may take.
    const tenantId = request.caller?.tenantId ?? '';
    if (!memory.take(tenantId, bytes))
      throw new TallymanError('UPLOADS_BUSY', 'too many uploads at once; try again in a moment');
    reply.raw.once('close', () => memory.give(tenantId, bytes));
    return payload;
  });
}
