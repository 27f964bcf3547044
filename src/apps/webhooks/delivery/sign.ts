import {
  createHmac,
  createPrivateKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto';
import { TallymanError } from '../../../engine/errors.ts';

/**
 * Which bytes are the key of which signature. docs/webhooks.md says the same to receivers.
 *
 *   secret                      X-BPC-Signature                webhook-signature, v1
 *   whsec_ and base64           the text, as it is shown       the decoded bytes, as Standard Webhooks says
 *   any other text              the text                       the text
 *   made by an older release    the decoded bytes              the decoded bytes
 */
export interface Secret {
  readonly text: string;
  /** `decoded`: made by a release that decoded it for X-BPC-Signature, too; its receiver does the same. */
  readonly bpcKey: 'text' | 'decoded';
}

const prefix = 'whsec_';
const shortest = 8;
const longest = 256;

/** A secret in the form that receivers get: `whsec_` and base64 of 32 random bytes. */
export const newSecret = (): string => prefix + randomBytes(32).toString('base64');

/** Refuses a text that would not be the same key for the receiver as it is for us. */
export function requireSecret(text: string): void {
  const refuse = (why: string) => new TallymanError('BAD_OPTION', `the secret is refused: ${why}`);
  const bytes = Buffer.byteLength(text);
  if (bytes < shortest || bytes > longest)
    throw refuse(`it has ${bytes} bytes, expected ${shortest} to ${longest}`);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for.
  if (/[\u0000-\u001f\u007f]/.test(text) || !text.isWellFormed())
    throw refuse('it contains a control character, such as the end of a line, or is not Unicode');
  if (/^wh[sp]k_/.test(text))
    throw refuse('whsk_ and whpk_ begin keys of Ed25519; expected a secret that both sides know');
  if (text.startsWith(prefix) && decoded(text) === undefined)
    throw refuse(`what follows ${prefix} is not base64; leave the prefix out to use the text as it is`);
}

/** The bytes of `whsec_` and base64; undefined for any other text. */
function decoded(text: string): Buffer | undefined {
  if (!text.startsWith(prefix)) return undefined;
  const encoded = text.slice(prefix.length);
  const bytes = Buffer.from(encoded, 'base64');
  return bytes.length > 0 && bytes.toString('base64') === encoded ? bytes : undefined;
}

const textKey = ({ text }: Secret): Buffer => Buffer.from(text);
const standardKey = (secret: Secret): Buffer => decoded(secret.text) ?? textKey(secret);
const bpcKey = (secret: Secret): Buffer =>
  secret.bpcKey === 'decoded' ? standardKey(secret) : textKey(secret);

const hmac = (key: Buffer, content: Buffer) => createHmac('sha256', key).update(content);

/** PKCS #8 of an Ed25519 key is this and its 32 bytes. */
const pkcs8Head = Buffer.from('302e020100300506032b657004220420', 'hex');

/** As Standard Webhooks writes them: `whsk_` and base64 of seed and public key, `whpk_` and base64 of the 32 bytes of the public key. */
export function newKeyPair(): { readonly privateKey: string; readonly publicKey: string } {
  const pair = generateKeyPairSync('ed25519');
  const seed = pair.privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-32);
  const open = pair.publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  return {
    privateKey: `whsk_${Buffer.concat([seed, open]).toString('base64')}`,
    publicKey: `whpk_${open.toString('base64')}`,
  };
}

function keyObject(privateKey: string): KeyObject {
  const seed = Buffer.from(privateKey.slice('whsk_'.length), 'base64').subarray(0, 32);
  return createPrivateKey({ key: Buffer.concat([pkcs8Head, seed]), format: 'der', type: 'pkcs8' });
}

export interface Signed {
  readonly eventId: string;
  readonly eventType: string;
  readonly deliveryId: string;
  readonly body: Buffer;
  readonly sentAt: Date;
  /** The newest first. Older ones expire soon and sign `webhook-signature` only. */
  readonly secrets: readonly Secret[];
  /** Of Ed25519, the newest first; none: it is not asked for. */
  readonly privateKeys: readonly string[];
}

/** The headers that identify the delivery and sign it. */
export function signedHeaders(signed: Signed): Readonly<Record<string, string>> {
  const { eventId, eventType, deliveryId, body, sentAt, secrets, privateKeys } = signed;
  const [newest] = secrets;
  if (newest === undefined) throw new Error(`the endpoint of delivery ${deliveryId} has no secret`);
  const timestamp = String(Math.floor(sentAt.getTime() / 1000));
  const content = Buffer.concat([Buffer.from(`${eventId}.${timestamp}.`), body]);
  const signatures = [
    ...secrets.map((secret) => `v1,${hmac(standardKey(secret), content).digest('base64')}`),
    ...privateKeys.map((key) => `v1a,${sign(null, content, keyObject(key)).toString('base64')}`),
  ];
  return {
    'x-bpc-event-type': eventType,
    'x-bpc-delivery-id': deliveryId,
    'x-bpc-signature': `sha256=${hmac(bpcKey(newest), body).digest('hex')}`,
    'webhook-id': eventId,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
  };
}
