/** Errors of a log, in the words of the boundary. */
import { TallymanError } from '../../../engine/errors.ts';
import { BoundaryError, heldBack } from '../domain/errors.ts';
import type { NewFact, StreamId } from './store.ts';

/** `facts`: what was appended. If there were several, the error says which of them it is about. */
export function explained(error: unknown, stream: StreamId, facts: readonly NewFact[]): unknown {
  if (!(error instanceof TallymanError)) return error;
  const messageId = facts.length === 1 ? facts[0]?.record.messageId : keyIn(error);
  const details = messageId === undefined ? {} : { message_id: messageId };
  switch (error.code) {
    case 'CONFLICTING_DUPLICATE':
      return new BoundaryError(
        'ALREADY_EXISTS',
        'conflicting_duplicate',
        `${messageId === undefined ? 'a message id' : `message id "${messageId}"`} of zone "${stream.from}" was used before for other content. A fact never changes: ` +
          'give a new fact an id of its own.',
        { cause: error, details },
      );
    case 'PAYLOAD_TOO_LARGE':
      // The message names the fact.
      return new BoundaryError('INVALID_ARGUMENT', 'too_large', error.message, { cause: error, details });
    case 'LOG_BUSY':
      return new BoundaryError('RESOURCE_EXHAUSTED', 'busy', error.message, { cause: error, details });
    case 'HELD_BACK':
      return heldBack(String(error.details?.behind));
    default:
      return error;
  }
}

/** The key that an error of the log is about, if it says so. */
export function keyIn({ details }: TallymanError): string | undefined {
  const { key } = details ?? {};
  return typeof key === 'string' ? key : undefined;
}
