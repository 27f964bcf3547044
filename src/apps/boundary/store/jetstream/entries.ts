/** From entries to messages of a batch, and back. */
import type { StoredMsg } from '@nats-io/jetstream';
import { TallymanError } from '../../../../engine/errors.ts';
import { chainOver, type Prepared } from '../../../../engine/log/entry.ts';
import { recordIn } from '../record-in.ts';
import type { StoredEntry } from '../store.ts';
import type { BatchMessage } from './commit.ts';
import type { Head, KnownHead } from './head.ts';
import type { Names } from './names.ts';
import { parsed } from './parsed.ts';

const metaHeader = 'Tallyman-Entry';

/** What an entry says beside its text. ASCII, since it goes into a header. */
interface Meta {
  readonly digest: string;
  readonly chain: string;
  readonly at: number;
  /** Bytes of all records up to this one. */
  readonly total: number;
  /** Of a gap record; a fact's key is its message id. */
  readonly gap?: string;
}

export interface EntryOnServer extends StoredEntry {
  readonly sequence: number;
  readonly total: number;
}

/** A gap record needs no key message: its place is its identity. */
export const isGapKey = (key: string): boolean => key.startsWith('\u0001');

/** How many messages an entry takes. */
export const messagesFor = ({ key }: Prepared): number => (isGapKey(key) ? 1 : 2);

export function headMessage(names: Names, to: string, head: Head, sequence: number): BatchMessage {
  return { subject: names.head(to), payload: JSON.stringify(head), expected: sequence };
}

/** The batch that appends entries behind a head. */
export function appending(
  names: Names,
  to: string,
  { head, sequence }: KnownHead,
  entries: readonly Prepared[],
  source = head.source,
): { readonly head: Head; readonly messages: BatchMessage[] } {
  // By the clock of this process; that of another one, or of another server, may be behind.
  const at = Math.max(Date.now(), head.at);
  let { last, chain, total } = head;
  const messages = entries.flatMap(
    ({ key, keyHash, digest, payload, payloadHash, bytes }): BatchMessage[] => {
      last += 1;
      total += bytes;
      chain = chainOver(chain, { offset: last, key, digest, textHash: payloadHash });
      const isGap = isGapKey(key);
      const meta: Meta = { digest, chain, at, total, ...(isGap && { gap: key }) };
      const fact: BatchMessage = {
        subject: names.fact(to, last),
        payload,
        // No entry is ever replaced, whatever a head says.
        expected: 0,
        headers: { [metaHeader]: JSON.stringify(meta) },
      };
      return isGap
        ? [fact]
        : [{ subject: names.keyOfHash(keyHash), payload: `${to} ${last} ${digest}`, expected: 0 }, fact];
    },
  );
  const next: Head = { ...head, last, chain, total, at, ...(source && { source }) };
  // The head goes first: its sequence follows from that of the batch.
  return { head: next, messages: [headMessage(names, to, next, sequence), ...messages] };
}

export function entryIn({
  subject,
  seq,
  header,
  data,
}: Pick<StoredMsg, 'subject' | 'seq' | 'header' | 'data'>): EntryOnServer {
  const meta = metaIn(header.get(metaHeader), subject);
  const text = Buffer.from(data).toString();
  const record = recordIn(parsed(text), subject);
  return {
    offset: Number(subject.slice(subject.lastIndexOf('.') + 1)),
    key: meta.gap ?? ('messageId' in record ? record.messageId : ''),
    digest: meta.digest,
    chain: meta.chain,
    text,
    record,
    appendedAt: new Date(meta.at),
    sequence: seq,
    total: meta.total,
  };
}

function metaIn(text: string, subject: string): Meta {
  const meta = parsed(text) as Partial<Meta> | null | undefined;
  const isComplete =
    typeof meta?.digest === 'string' &&
    typeof meta.chain === 'string' &&
    Number.isSafeInteger(meta.at) &&
    Number.isSafeInteger(meta.total);
  if (!isComplete)
    throw new TallymanError(
      'LOG_DAMAGED',
      `the header ${metaHeader} of the entry ${subject} on JetStream cannot be read`,
    );
  return meta as Meta;
}

const keyPattern = /^(\S+) (\d+) (\S+)$/;

export interface KeyOnServer {
  readonly to: string;
  readonly offset: number;
  readonly digest: string;
}

export function keyIn(message: StoredMsg): KeyOnServer {
  const [, to, offset, digest] = keyPattern.exec(message.string()) ?? [];
  if (to === undefined || offset === undefined || digest === undefined)
    throw new TallymanError('LOG_DAMAGED', `the key ${message.subject} on JetStream cannot be read`);
  return { to, offset: Number(offset), digest };
}
