import { messageOf } from '../../../../engine/errors.ts';
import { BoundaryError } from '../../domain/errors.ts';

/** The cluster gave no answer, or said that it cannot do it now. Retry. */
export class ClusterUnavailable extends Error {
  /** Whether the cluster may have done it nevertheless. */
  readonly isUncertain: boolean;

  constructor(reason: string, options: { readonly isUncertain?: boolean; readonly cause?: unknown } = {}) {
    super(reason, { cause: options.cause });
    this.isUncertain = options.isUncertain ?? false;
  }
}

/** The names of the client's errors: the package is loaded when it is needed, so its classes are not known here. */
const unavailableNames: ReadonlySet<string> = new Set([
  'TimeoutError',
  'NoRespondersError',
  'ClosedConnectionError',
  'ConnectionError',
  'DrainingConnectionError',
  'RequestError',
]);

export function isUnavailable(error: unknown): error is Error {
  if (error instanceof ClusterUnavailable) return true;
  if (!(error instanceof Error)) return false;
  const { status, code } = error as { status?: unknown; code?: unknown };
  // Of the API: 503. Of a direct get: 503, or 408 for a request that nobody could handle in time.
  const isBusy = status === 503 || (error.name === 'JetStreamStatusError' && (code === 503 || code === 408));
  return isBusy || unavailableNames.has(error.name);
}

const streamNotFound = 10_059;
export const isStreamNotFound = (error: unknown): boolean =>
  (error as { code?: unknown }).code === streamNotFound;

/** What lies on the cluster. */
export type Kept = 'facts' | 'objects';

export function unavailableError(error: unknown, isUncertain: boolean, kept: Kept): BoundaryError {
  const again =
    kept === 'facts'
      ? 'It is uncertain whether the fact was written. Append it again under the same id: it is never stored twice.'
      : 'It is uncertain whether the object was stored. Put it again: the same bytes give the same answer.';
  const outcome = isUncertain ? again : 'Nothing was written. Try again.';
  return new BoundaryError(
    'UNAVAILABLE',
    isUncertain ? 'storage_uncertain' : 'storage_unavailable',
    `the JetStream cluster that keeps the ${kept} cannot be used: ${messageOf(error)}. ${outcome} ` +
      'If it stays so, see that more than half of its servers run and reach each other.',
    { cause: error },
  );
}
