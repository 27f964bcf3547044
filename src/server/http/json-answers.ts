import { TallymanError } from '../../engine/errors.ts';
import { type AnyRoute, Reply } from '../../host/route.ts';

/*
 * The answer to a write is kept under its `Idempotency-Key`, as JSON, without headers. A `Reply` or bytes would be sent right
 * the first time, and come back as something else when the request is repeated. So a write answers JSON, with or without a
 * key: a route that declares another type is refused when the server starts, and one that answers it is rolled back.
 */

export const isWrite = ({ method, readsOnly }: Pick<AnyRoute, 'method' | 'readsOnly'>): boolean =>
  method !== 'GET' && !readsOnly;

/** At start-up. */
export function requireJsonRoute(route: AnyRoute): void {
  if (isWrite(route) && route.produces !== undefined)
    throw notJson(route, `declares that it produces ${[route.produces].flat().join(', ')}`);
}

/** Before the write commits. */
export function requireJsonAnswer(route: AnyRoute, body: unknown): void {
  if (body instanceof Reply) throw notJson(route, `answers with a Reply of ${body.type}`);
  if (ArrayBuffer.isView(body) || body instanceof ArrayBuffer) throw notJson(route, 'answers with bytes');
}

const notJson = ({ method, url, action }: AnyRoute, what: string): TallymanError =>
  new TallymanError(
    'ANSWER_NOT_JSON',
    `${method} ${url} (${action}) writes and ${what}: the answer to a write is kept as JSON for its Idempotency-Key. Answer JSON, ` +
      'and let a GET give the other type; if it only reads, say readsOnly: true',
  );
