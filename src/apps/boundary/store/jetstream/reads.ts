/**
 * Reads. What decides something is asked of the stream's leader (no direct get): a replica may be behind. A leader that was
 * deposed and does not know it yet may be behind, too. That is harmless: a key or an entry that was found is there for good,
 * and one that was not found is only a reason to try a batch, which the leader that has the majority refuses if it is wrong.
 */
import type { StoredMsg } from '@nats-io/jetstream';
import type { MsgHdrs } from '@nats-io/transport-node';
import { messageOf } from '../../../../engine/errors.ts';
import type { ReadOptions } from '../store.ts';
import { type EntryOnServer, entryIn, type KeyOnServer, keyIn } from './entries.ts';
import { ClusterUnavailable, isStreamNotFound } from './errors.ts';
import { headIn, type KnownHead, offsetAfter } from './head.ts';
import type { Names } from './names.ts';
import type { JetStreamSession } from './session.ts';

/** A connection that is lost ends no subscription, so this is also how long that may go unnoticed. */
const pageTimeoutMs = 2000;

/** The last message of a subject, or of all that a pattern names. */
export async function lastOf(
  { manager }: JetStreamSession,
  { stream }: Pick<Names, 'stream'>,
  subject: string,
): Promise<StoredMsg | undefined> {
  try {
    return (await manager.streams.getMessage(stream, { last_by_subj: subject })) ?? undefined;
  } catch (error) {
    if (isStreamNotFound(error)) return undefined;
    throw error;
  }
}

export async function readHead(
  session: JetStreamSession,
  names: Names,
  to: string,
): Promise<KnownHead | undefined> {
  const message = await lastOf(session, names, names.head(to));
  return message && { head: headIn(message.string(), message.subject), sequence: message.seq };
}

export async function readKey(
  session: JetStreamSession,
  names: Names,
  subject: string,
): Promise<KeyOnServer | undefined> {
  const message = await lastOf(session, names, subject);
  return message && keyIn(message);
}

export async function readEntry(
  session: JetStreamSession,
  names: Names,
  to: string,
  offset: number,
): Promise<EntryOnServer | undefined> {
  const message = await lastOf(session, names, names.fact(to, offset));
  return message && entryIn(message);
}

/**
 * The first entry comes from the leader, what follows it from any replica: one that is behind has a first part of the same
 * entries, so that the page is shorter and never has a gap.
 */
export async function readPage(
  session: JetStreamSession,
  names: Names,
  to: string,
  { after, limit, maxBytes }: ReadOptions,
): Promise<EntryOnServer[]> {
  const known = await readHead(session, names, to);
  const next = known && offsetAfter(known.head, after);
  const first = next === undefined ? undefined : await readEntry(session, names, to, next);
  if (!known || !first) return [];
  const page = [first];
  let bytes = Buffer.byteLength(first.text);
  if (limit === 1 || bytes >= maxBytes) return page;
  const request = {
    seq: first.sequence + 1,
    batch: Math.min(limit - 1, 1000),
    max_bytes: Math.min(maxBytes, 16 * 1024 * 1024),
    next_by_subj: names.fact(to, '*'),
  };
  const more = await nextMessages(session, names, request, entryIn);
  for (const entry of more) {
    bytes += Buffer.byteLength(entry.text);
    const expected = offsetAfter(known.head, page.at(-1)?.offset ?? 0) ?? (page.at(-1)?.offset ?? 0) + 1;
    if (bytes > maxBytes || entry.offset !== expected) break;
    page.push(entry);
  }
  return page;
}

export interface Message {
  readonly subject: string;
  readonly seq: number;
  readonly time: Date;
  readonly header: MsgHdrs;
  readonly data: Uint8Array;
}

/** A direct get of many messages, from any replica. It ends with a message without payload that has a status. */
export function nextMessages<T>(
  { connection }: JetStreamSession,
  { stream }: Pick<Names, 'stream'>,
  request: object,
  read: (message: Message) => T,
): Promise<T[]> {
  const { promise, resolve, reject } = Promise.withResolvers<T[]>();
  const found: T[] = [];
  const inbox = `_INBOX.${crypto.randomUUID()}`;
  const done = (error?: Error): void => {
    clearTimeout(timer);
    subscription.unsubscribe();
    if (error) reject(error);
    else resolve(found);
  };
  const subscription = connection.subscribe(inbox, {
    callback: (error, { headers, data }) => {
      if (error) return done(new ClusterUnavailable(messageOf(error), { cause: error }));
      const code = headers?.code ?? 0;
      // 204: the end; 404: nothing (yet) on this replica.
      if (code === 204 || code === 404) return done();
      if (code !== 0 || !headers)
        return done(
          new ClusterUnavailable(`a read was answered with status ${code} ${headers?.description ?? ''}`),
        );
      try {
        const subject = headers.get('Nats-Subject');
        const seq = Number(headers.get('Nats-Sequence'));
        const time = new Date(headers.get('Nats-Time-Stamp'));
        found.push(read({ subject, seq, time, header: headers, data }));
      } catch (unreadable) {
        done(unreadable as Error);
      }
    },
  });
  const timer = setTimeout(() => done(new ClusterUnavailable('a read got no answer')), pageTimeoutMs);
  connection.publish(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(request), { reply: inbox });
  return promise;
}
