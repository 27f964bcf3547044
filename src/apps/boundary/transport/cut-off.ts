/**
 * Of every client of the service, in a node and in the SDK: answers that Node takes for cut off although they are complete. From Node 24.20 and 26.3 on, an HTTP/2 answer that arrived whole
 * before it was read fails with ERR_STREAM_PREMATURE_CLOSE (nodejs/node#65677): under load that is one call in thousands. Every
 * unary call of the service may be made again, so it is, at once.
 */
import type { Interceptor } from '@connectrpc/connect';

const mostTries = 5;

export const repeatCutOff: Interceptor = (next) => async (request) => {
  if (request.stream) return next(request);
  for (let tries = 1; ; tries += 1)
    try {
      return await next(request);
    } catch (error) {
      if (tries === mostTries || request.signal.aborted || !isCutOff(error)) throw error;
    }
};

function isCutOff(error: unknown): boolean {
  for (let each = error; each instanceof Error; each = each.cause)
    if ('code' in each && each.code === 'ERR_STREAM_PREMATURE_CLOSE') return true;
  return false;
}
