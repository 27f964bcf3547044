/** Errors of requests that are no calls: the same code, reason and message, as JSON. */
import type { ServerResponse } from 'node:http';
import type { Http2ServerResponse } from 'node:http2';
import type { Logger } from '../../../engine/logger.ts';
import { BoundaryError } from '../domain/errors.ts';
import { toConnectError } from './errors.ts';

/** HTTP statuses of the codes, as Connect has them. */
const statuses: Readonly<Record<string, number>> = {
  INVALID_ARGUMENT: 400,
  FAILED_PRECONDITION: 412,
  OUT_OF_RANGE: 416,
  UNAUTHENTICATED: 401,
  PERMISSION_DENIED: 403,
  NOT_FOUND: 404,
  ALREADY_EXISTS: 409,
  ABORTED: 409,
  RESOURCE_EXHAUSTED: 429,
  UNAVAILABLE: 503,
};

export function answerError(
  response: ServerResponse | Http2ServerResponse,
  error: unknown,
  logger: Logger,
): void {
  const told = error instanceof BoundaryError ? error : undefined;
  const code = told?.code ?? 'INTERNAL';
  const message = told?.message ?? toConnectError(error, logger).rawMessage;
  answerJson(response, statuses[code] ?? 500, {
    code: code.toLowerCase(),
    reason: told?.reason ?? 'failed',
    message,
  });
}

export function answerJson(
  response: ServerResponse | Http2ServerResponse,
  status: number,
  body: object,
): void {
  const answer = response as ServerResponse;
  if (answer.headersSent) {
    // What has gone out cannot be taken back; the reader must see that it is not all.
    answer.destroy();
    return;
  }
  const text = JSON.stringify(body);
  answer.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  answer.end(text);
}
