import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { isConnectionError } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';

/** The error that a caller gets: a status and a stable code; never a stack, never SQL. */
export interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly details?: unknown;
}

/** The HTTP status of each error code. Apps add theirs. */
export type Statuses = Readonly<Record<string, number>>;

export const coreStatuses: Statuses = {
  UNAUTHENTICATED: 401,
  FORBIDDEN: 403,
  INTERNAL_KIND: 403,
  NOT_FOUND: 404,
  AMBIGUOUS: 409,
  BAD_STATE: 409,
  IDEMPOTENCY_CONFLICT: 409,
  PAYLOAD_TOO_LARGE: 413,
  UNKNOWN_KIND: 422,
  RATE_LIMITED: 429,
  TENANT_BUSY: 429,
  BACKLOG_FULL: 429,
  TOO_MANY_QUEUES: 429,
  TOO_MANY_SCHEDULES: 429,
  TOO_MANY_STREAMS: 429,
  BAD_OPTION: 400,
  BAD_SCHEDULE: 400,
  VALIDATION_ERROR: 400,
  KIND_CHANGING: 503,
  LANE_BUSY: 503,
  UPLOADS_BUSY: 503,
  OUTCOME_UNKNOWN: 503,
};

/** The error codes that `tallyman.enqueue` and other SQL functions raise. */
const sqlCodes: Readonly<Record<string, string>> = {
  TM001: 'UNKNOWN_KIND',
  TM002: 'VALIDATION_ERROR',
  TM003: 'PAYLOAD_TOO_LARGE',
};

const fastifyCodes: Readonly<Record<string, string>> = {
  FST_ERR_CTP_INVALID_JSON_BODY: 'MALFORMED_JSON',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'MALFORMED_JSON',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'UNSUPPORTED_MEDIA_TYPE',
  FST_ERR_CTP_BODY_TOO_LARGE: 'PAYLOAD_TOO_LARGE',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'MALFORMED_REQUEST',
  FST_ERR_BAD_URL: 'MALFORMED_REQUEST',
};

/** Fields that a refusal names: a batch may have thousands that are wrong. */
const mostFields = 20;

export function refusalOf(error: unknown, statuses: Statuses): Refusal {
  if (hasZodFastifySchemaValidationErrors(error)) {
    const fields = error.validation.slice(0, mostFields).map((issue) => ({
      path: fieldOf(error.validationContext ?? 'request', issue.instancePath ?? ''),
      message: issue.message ?? 'is not valid',
    }));
    const more = error.validation.length - fields.length;
    return {
      status: 400,
      code: 'VALIDATION_ERROR',
      message: [
        ...fields.map(({ path, message }) => `${path}: ${message}`),
        ...(more > 0 ? [`and ${more} more`] : []),
      ].join('; '),
      details: { fields },
    };
  }
  if (error instanceof TallymanError) {
    const status = statuses[error.code];
    if (status !== undefined)
      return {
        status,
        code: error.code,
        message: error.message,
        ...(error.details && { details: error.details }),
      };
  }
  const { code = '', statusCode } = error as { code?: string; statusCode?: number };
  const known = sqlCodes[code];
  if (known) return { status: statuses[known] ?? 400, code: known, message: (error as Error).message };
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return {
      status: statusCode,
      code: fastifyCodes[code] ?? 'BAD_REQUEST',
      message: (error as Error).message,
    };
  // statement_timeout: see `server.statementTimeoutMs`.
  if (code === '57014')
    return {
      status: 503,
      code: 'TOO_SLOW',
      message:
        'the database took too long for this request, and it was undone; ask for less at once, or later',
    };
  if (isConnectionError(error))
    return {
      status: 503,
      code: 'DATABASE_UNAVAILABLE',
      message: 'the database cannot be reached; try again in a moment',
    };
  return {
    status: 500,
    code: 'INTERNAL',
    message: 'something went wrong here; the log says what, under the correlation id',
  };
}

/** `body.lane`, `query.limit`, `params.id`. */
function fieldOf(context: string, instancePath: string): string {
  const part = context === 'querystring' ? 'query' : context;
  return `${part}${instancePath.replaceAll('/', '.')}`;
}
