/**
 * An atomic batch (NATS 2.12, ADR-50): the server stores all messages or none, and checks what each expects of its subject
 * when the last one arrives, against what was there before the batch.
 */
import type { Msg, MsgHdrs } from '@nats-io/transport-node';
import { messageOf } from '../../../../engine/errors.ts';
import { ClusterUnavailable, isUnavailable } from './errors.ts';
import type { JetStreamSession } from './session.ts';

export interface BatchMessage {
  readonly subject: string;
  readonly payload: string | Uint8Array;
  /** The sequence of the last message of this subject; 0: there must be none. */
  readonly expected: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The server's limit for a batch. */
export const mostMessages = 1000;

/** Something was not as expected: nothing was stored. */
export const conflict = 'conflict';

const commitTimeoutMs = 5000;

/** "wrong last sequence": as it is, and while another message of the subject is on its way. */
const wrongSequence: ReadonlySet<number> = new Set([10_071, 10_164]);
/** Messages of the batch were lost on the way, or the server has too many open batches: nothing was stored. */
const notStored: ReadonlySet<number> = new Set([10_176, 10_210, 10_211]);

interface Answer {
  readonly seq?: number;
  readonly count?: number;
  readonly error?: { readonly err_code?: number; readonly description?: string };
}

/**
 * Returns the sequence of the first message. Throws `ClusterUnavailable` if the cluster cannot do it now; it is uncertain then if the last
 * message was sent and no answer came.
 */
export async function commit(
  session: JetStreamSession,
  messages: readonly BatchMessage[],
): Promise<number | typeof conflict> {
  const { connection } = session;
  const id = session.nextId();
  const headersOf = ({ expected, headers = {} }: BatchMessage, i: number): MsgHdrs => {
    const made = session.headers();
    for (const [name, value] of Object.entries(headers)) made.set(name, value);
    made.set('Nats-Expected-Last-Subject-Sequence', String(expected));
    made.set('Nats-Batch-Id', id);
    made.set('Nats-Batch-Sequence', String(i + 1));
    if (i === messages.length - 1) made.set('Nats-Batch-Commit', '1');
    return made;
  };
  const last = messages.at(-1);
  if (!last) throw new Error('a batch needs a message');
  const answer = await answerTo(async () => {
    messages.slice(0, -1).forEach((message, i) => {
      connection.publish(message.subject, message.payload, { headers: headersOf(message, i) });
    });
    return connection.request(last.subject, last.payload, {
      headers: headersOf(last, messages.length - 1),
      timeout: commitTimeoutMs,
    });
  });
  if (answer === conflict) return conflict;
  const { seq = 0, count = 0 } = answer;
  if (count !== messages.length)
    throw new Error(`the server has stored ${count} messages of a batch of ${messages.length}`);
  session.noteSuccess();
  return seq - count + 1;
}

/** One message by itself. Returns its sequence; throws as `commit` does. */
export async function store(
  session: JetStreamSession,
  { subject, payload, expected }: BatchMessage,
): Promise<number | typeof conflict> {
  const headers = session.headers();
  headers.set('Nats-Expected-Last-Subject-Sequence', String(expected));
  const answer = await answerTo(() =>
    session.connection.request(subject, payload, { headers, timeout: commitTimeoutMs }),
  );
  if (answer === conflict) return conflict;
  session.noteSuccess();
  return answer.seq ?? 0;
}

async function answerTo(send: () => Promise<Msg>): Promise<Answer | typeof conflict> {
  let answer: Answer;
  try {
    answer = (await send()).json<Answer>();
  } catch (error) {
    if (!isUnavailable(error)) throw error;
    // Nobody listens to the subject: the stream has no leader, so nobody has seen the end of the batch.
    const isUncertain = !/no responders/i.test(`${messageOf(error)} ${messageOf(error.cause)}`);
    throw new ClusterUnavailable(messageOf(error), { isUncertain, cause: error });
  }
  if (!answer.error) return answer;
  const code = answer.error.err_code ?? 0;
  if (wrongSequence.has(code)) return conflict;
  throw new ClusterUnavailable(answer.error.description ?? `error ${code}`, {
    isUncertain: !notStored.has(code),
  });
}
