import { messageOf } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { Hint } from './wakeup.ts';

/** More than any hint needs; what is longer is not read. */
const maxMessageBytes = 16 * 1024;

/** `job_id` is what other systems send and read; `queue` is ours. */
export function encodeHint(hint: Hint): Uint8Array {
  return Buffer.from(JSON.stringify({ job_id: hint.jobId ?? null, queue: hint.queue }));
}

/** Undefined for whatever is not a hint. `queue` null: the message did not say. */
function decodeHint(body: Uint8Array): Hint | undefined {
  if (body.byteLength > maxMessageBytes) return undefined;
  let message: unknown;
  try {
    message = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8'));
  } catch {
    return undefined;
  }
  if (typeof message !== 'object' || message === null) return undefined;
  const { job_id: id = null, queue = null } = message as { job_id?: unknown; queue?: unknown };
  if (queue !== null && typeof queue !== 'string') return undefined;
  if (id === null) return queue === null ? undefined : { queue };
  if (typeof id === 'string') return id === '' ? undefined : { queue, jobId: id };
  if (typeof id !== 'number' || !Number.isInteger(id)) return undefined;
  // Beyond 2^53 JSON has rounded the number: it still says that there is work, but no longer which.
  return Number.isSafeInteger(id) ? { queue, jobId: String(id) } : { queue };
}

/** Hands messages to the worker: what is no hint is counted and dropped, a listener that throws is reported. */
export class Inbox {
  readonly #logger: Logger;
  readonly #fields: object;
  readonly #onHint: (hint: Hint) => void;
  #malformed = 0;

  constructor(logger: Logger, fields: object, onHint: (hint: Hint) => void) {
    this.#logger = logger;
    this.#fields = fields;
    this.#onHint = onHint;
  }

  receive(body: Uint8Array, queueIfUnsaid: string | null = null): void {
    const hint = decodeHint(body);
    if (hint === undefined) {
      this.#malformed++;
      const fields = { ...this.#fields, malformed: this.#malformed, bytes: body.byteLength };
      this.#logger.debug(fields, 'ignored a message that is no wake-up');
      return;
    }
    try {
      this.#onHint({ ...hint, queue: hint.queue ?? queueIfUnsaid });
    } catch (error) {
      this.#logger.error({ ...this.#fields, reason: messageOf(error) }, 'the listener of a wake-up threw');
    }
  }
}
