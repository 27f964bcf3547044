import type { FastifyInstance } from 'fastify';
import type { Methods } from './methods.ts';

/** What a page may send, beside what browsers allow anyway. */
const allowedHeaders = 'authorization, content-type, idempotency-key, last-event-id, x-correlation-id';
/** What a page may read of an answer, beside its body. */
const exposedHeaders = 'allow, idempotency-replayed, retry-after, x-correlation-id';
/** How long a browser need not ask again. */
const rememberS = 600;

/**
 * Lets pages of these origins call the API from a browser; `*` is every origin. Callers still need a key: it allows a page to
 * send one, and to read the answer. Cookies are not used, so none are allowed.
 */
export function allowOrigins(app: FastifyInstance, origins: readonly string[], methods: Methods): void {
  if (origins.length === 0) return;
  const isOpen = origins.includes('*');
  app.addHook('onRequest', async (request, reply) => {
    if (!isOpen) reply.header('vary', 'Origin');
    const { origin } = request.headers;
    if (origin === undefined || !(isOpen || origins.includes(origin))) return;
    reply.header('access-control-allow-origin', isOpen ? '*' : origin);
    reply.header('access-control-expose-headers', exposedHeaders);
    if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined)
      return;
    // Browsers ask like this before they send a key or JSON.
    const [path = ''] = request.url.split('?');
    return reply
      .code(204)
      .header('access-control-allow-methods', methods.at(path).join(', '))
      .header('access-control-allow-headers', allowedHeaders)
      .header('access-control-max-age', String(rememberS))
      .send();
  });
}
