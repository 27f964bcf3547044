/**
 * Names on the cluster. A message id is unique among everything of a tenant that comes from one zone, and a batch can check
 * only subjects of one JetStream stream: so there is one JetStream stream for (tenant, buffer, from), with subjects
 *
 *   head.<to>            the state of one boundary stream; the last message counts, older ones are dropped by the server
 *   fact.<to>.<offset>   an entry; purged when it is trimmed
 *   key.<hash>           a message id, with the place and the digest of its fact; never purged
 *
 * `grown.<to>` is no subject of it: hints for readers that wait.
 */
import { hash } from 'node:crypto';
import { keyHashOf, keyPrefixOf } from '../../../../engine/log/entry.ts';
import type { BufferRole, StreamId } from '../store.ts';

const prefix = 'tallyman.boundary';

/** A tenant's id may be any text; a token of a subject may not. */
export const tokenOf = (tenantId: string): string => hash('sha256', tenantId).slice(0, 16);

export class Names {
  readonly stream: string;
  readonly subjects: readonly string[];
  readonly keyPrefix: string;
  readonly #root: string;

  constructor({ tenantId, buffer, from }: Omit<StreamId, 'to'>) {
    this.stream = `tallyman_${tokenOf(tenantId)}_${buffer}_${from}`;
    this.#root = `${prefix}.${tokenOf(tenantId)}.${buffer}.${from}`;
    this.subjects = [`${this.#root}.head.*`, `${this.#root}.fact.*.*`, `${this.#root}.key.*`];
    this.keyPrefix = keyPrefixOf(tenantId, `boundary/${buffer}/${from}`);
  }

  head(to: string): string {
    return `${this.#root}.head.${to}`;
  }

  fact(to: string, offset: number | '*'): string {
    return `${this.#root}.fact.${to}.${offset}`;
  }

  key(messageId: string): string {
    return this.keyOfHash(keyHashOf(this.keyPrefix, messageId));
  }

  /** The server keeps every subject in memory: 22 letters instead of 32. */
  keyOfHash(hex: string): string {
    return `${this.#root}.key.${Buffer.from(hex, 'hex').toString('base64url')}`;
  }

  grown(to: string): string {
    return `${this.#root}.grown.${to}`;
  }
}

/** What a head says whether it was committed or not: that somebody tries to append. */
export const everyHead = `${prefix}.*.*.*.head.*`;
export const everyHint = `${prefix}.*.*.*.grown.*`;

/** Names one boundary stream among all: the subjects of its head and of its hints differ in one token. */
export const streamKey = (subject: string): string => {
  const tokens = subject.split('.');
  return `${tokens.slice(2, 5).join('.')}.${tokens[6]}`;
};

export const subjectsOfTenant = (tenantId: string): string => `${prefix}.${tokenOf(tenantId)}.>`;

const streamPattern = /^tallyman_[0-9a-f]{16}_(store|forward)_(.+)$/;

export function keySpaceOf(tenantId: string, stream: string): Omit<StreamId, 'to'> | undefined {
  const [, buffer, from] = streamPattern.exec(stream) ?? [];
  return buffer === undefined || from === undefined
    ? undefined
    : { tenantId, buffer: buffer as BufferRole, from };
}

/** The last token: a zone. */
export const zoneIn = (subject: string): string => subject.slice(subject.lastIndexOf('.') + 1);
