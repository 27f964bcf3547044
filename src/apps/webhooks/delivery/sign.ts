import { createHmac, randomBytes } from 'node:crypto';

const prefix = 'whsec_';

/** A secret in the form that receivers get: `whsec_` and base64 of 32 random bytes. */
export const newSecret = (): string => prefix + randomBytes(32).toString('base64');

/** The signing key: the decoded bytes, for both kinds of signature. */
const keyOf = (secret: string): Buffer => Buffer.from(secret.slice(prefix.length), 'base64');

const hmac = (secret: string, content: Buffer) => createHmac('sha256', keyOf(secret)).update(content);

export interface Signed {
  readonly eventId: string;
  readonly eventType: string;
  readonly deliveryId: string;
  readonly body: Buffer;
  readonly sentAt: Date;
  /** The newest first. Older ones expire soon and sign `webhook-signature` only. */
  readonly secrets: readonly string[];
}

/** The headers that identify the delivery and sign it. */
export function signedHeaders({ eventId, eventType, deliveryId, body, sentAt, secrets }: Signed) {
  const [newest = ''] = secrets;
  const timestamp = String(Math.floor(sentAt.getTime() / 1000));
  const content = Buffer.concat([Buffer.from(`${eventId}.${timestamp}.`), body]);
  return {
    'x-bpc-event-type': eventType,
    'x-bpc-delivery-id': deliveryId,
    'x-bpc-signature': `sha256=${hmac(newest, body).digest('hex')}`,
    'webhook-id': eventId,
    'webhook-timestamp': timestamp,
    'webhook-signature': secrets.map((secret) => `v1,${hmac(secret, content).digest('base64')}`).join(' '),
  };
}
