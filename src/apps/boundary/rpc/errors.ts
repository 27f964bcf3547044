import { Code, ConnectError } from '@connectrpc/connect';
import { isOutage } from '../../../engine/database/database.ts';
import type { Logger } from '../../../engine/logger.ts';
import { type BoundaryCode, BoundaryError } from '../domain/errors.ts';

const codes: Readonly<Record<BoundaryCode, Code>> = {
  INVALID_ARGUMENT: Code.InvalidArgument,
  NOT_FOUND: Code.NotFound,
  ALREADY_EXISTS: Code.AlreadyExists,
  FAILED_PRECONDITION: Code.FailedPrecondition,
  OUT_OF_RANGE: Code.OutOfRange,
  ABORTED: Code.Aborted,
  RESOURCE_EXHAUSTED: Code.ResourceExhausted,
  UNAVAILABLE: Code.Unavailable,
  DATA_LOSS: Code.DataLoss,
  PERMISSION_DENIED: Code.PermissionDenied,
  UNAUTHENTICATED: Code.Unauthenticated,
};

/** The reason comes first in the message: it is what programs look for, in every protocol. */
export function toConnectError(error: unknown, logger: Logger): ConnectError {
  if (error instanceof ConnectError) return error;
  if (error instanceof BoundaryError)
    return new ConnectError(
      `${error.reason}: ${error.message}`,
      codes[error.code],
      undefined,
      undefined,
      error,
    );
  if (isOutage(error))
    return new ConnectError("the node's database cannot be reached; try again", Code.Unavailable);
  logger.error(
    { error: error instanceof Error ? (error.stack ?? error.message) : String(error) },
    'a call failed',
  );
  return new ConnectError('the node failed to do this; its log says why', Code.Internal);
}
