/**
 * Messages that cannot be parsed, as a whole or in part. They are stored as they came, as jobs of one attempt, before
 * they are acknowledged. The attempt fails and they become dead letters; redrive them when the cause is fixed.
 */
import { hash } from 'node:crypto';
import { z } from 'zod';
import type { TenantDatabase } from '../../../engine/database/tenant.ts';
import { TallymanError } from '../../../engine/errors.ts';
import { defineKind, type Kind } from '../../../engine/jobs/kind.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import type { RejectedItem } from '../../iot/index.ts';

export const unreadableKind = 'iot.unreadable-message';

const schema = z.object({
  topic: z.string(),
  reason: z.string(),
  receivedAt: z.string(),
  /** The message, as text where it is text. */
  encoding: z.enum(['text', 'base64']),
  body: z.string(),
  /** Of the whole message; more than `body` has if it was too long to be stored. */
  bytes: z.int(),
});

export type UnreadableMessage = z.infer<typeof schema>;

/** As large as an enqueue accepts, with room for escapes. Longer messages are compared by their head only. */
const longestKept = 256 * 1024;
const longestHead = 16 * 1024;
const mostReasons = 5;

export interface Received {
  readonly tenantId: string;
  readonly topic: string;
  readonly payload: Buffer;
  readonly receivedAt: Date;
  /** Default: as the topic `zebra/fx/{device}/reads` says. */
  readonly deviceId?: string;
  /** What is wrong with its topic. */
  readonly flaw?: string;
}

/** Retries the message after a redrive: `again` takes it in, or throws the reason why it cannot. */
export function unreadable(
  again: (message: Received, tenant: TenantDatabase) => Promise<void>,
): Kind<UnreadableMessage> {
  return defineKind<UnreadableMessage>({
    name: unreadableKind,
    queue: 'iot',
    schema,
    retry: { maxAttempts: 1 },
    scope: 'tenant',
    handler: async ({ topic, encoding, body, bytes, receivedAt }, { tenant }) => {
      const payload = Buffer.from(body, encoding === 'text' ? 'utf8' : 'base64');
      if (payload.length < bytes)
        throw new TallymanError(
          'MESSAGE_TOO_LARGE',
          `the message had ${bytes} bytes; only its first ${payload.length} were kept`,
        );
      await again({ tenantId: tenant.tenantId, topic, payload, receivedAt: new Date(receivedAt) }, tenant);
    },
  });
}

/** The same message adds no second job while its job or its dead letter exists. */
export async function keepUnreadable(
  tallyman: Tallyman,
  kind: Kind<UnreadableMessage>,
  messages: readonly (Received & { readonly reason: string })[],
): Promise<void> {
  await tallyman.enqueueMany(
    kind,
    messages.map((message) => ({
      payload: kept(message),
      tenantId: message.tenantId,
      dedupeKey: hash(
        'sha256',
        Buffer.concat([Buffer.from(`${message.topic}\n`), message.payload]),
        'base64',
      ),
    })),
  );
}

function kept({ topic, payload, receivedAt, reason }: Received & { reason: string }): UnreadableMessage {
  const part = payload.length > longestKept ? payload.subarray(0, longestHead) : payload;
  const text = part.toString('utf8');
  const isText = !text.includes('\0') && Buffer.from(text).equals(part);
  return {
    topic: topic.replaceAll('\0', '�'),
    reason: reason.replaceAll('\0', '�').toWellFormed(),
    receivedAt: receivedAt.toISOString(),
    encoding: isText ? 'text' : 'base64',
    body: isText ? text : part.toString('base64'),
    bytes: payload.length,
  };
}

/** `read 3: idHex is empty; read 5: …` */
export function reasonOf(rejected: readonly RejectedItem[]): string {
  const told = rejected
    .slice(0, mostReasons)
    .map(({ index, reason }) => (index === null ? reason : `read ${index + 1}: ${reason}`));
  const more = rejected.length - told.length;
  return [...told, ...(more > 0 ? [`and ${more} more`] : [])].join('; ');
}
