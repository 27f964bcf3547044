/** Errors of a log, in the words of the boundary. */
import { TallymanError } from '../../../engine/errors.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { StreamId } from './store.ts';

export function explained(error: unknown, stream: StreamId, messageId: string): unknown {
  if (!(error instanceof TallymanError)) return error;
  const details = { message_id: messageId };
  switch (error.code) {
    case 'CONFLICTING_DUPLICATE':
      return new BoundaryError(
        'ALREADY_EXISTS',
        'conflicting_duplicate',
        `message id "${messageId}" of zone "${stream.from}" was used before for other content. A fact never changes: ` +
          'give a new fact an id of its own.',
        { cause: error, details },
      );
    case 'PAYLOAD_TOO_LARGE':
      return new BoundaryError('INVALID_ARGUMENT', 'too_large', `fact "${messageId}": ${error.message}`, {
        cause: error,
        details,
      });
    case 'LOG_BUSY':
      return new BoundaryError('RESOURCE_EXHAUSTED', 'busy', error.message, { cause: error, details });
    default:
      return error;
  }
}
