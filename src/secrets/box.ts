import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { TallymanError } from '../engine/errors.ts';

const version = 'v1';
const nonceBytes = 12;
const tagBytes = 16;

/**
 * Encrypts secrets at rest, all under one master secret of at least 32 bytes. AES-256-GCM; the context (which row, which
 * use) is authenticated with the text, so that a sealed secret copied into another row does not open there.
 *
 * Sealed text: `v1.<base64url of nonce, ciphertext, tag>`.
 */
export class SecretBox {
  readonly #master: Buffer;
  readonly #key: Buffer;

  constructor(master: Buffer) {
    if (master.length < 32)
      throw new TallymanError(
        'BAD_CONFIG',
        `the master secret must have at least 32 bytes, got ${master.length}`,
      );
    this.#master = master;
    this.#key = this.derive('seal');
  }

  /** A key for one purpose: it reveals nothing about the master secret or the keys of other purposes. */
  derive(purpose: string): Buffer {
    return Buffer.from(hkdfSync('sha256', this.#master, 'tallyman', purpose, 32));
  }

  seal(plain: string, context: string): string {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce).setAAD(Buffer.from(context));
    const body = Buffer.concat([nonce, cipher.update(plain, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    return `${version}.${body.toString('base64url')}`;
  }

  open(sealed: string, context: string): string {
    const [head, text = ''] = sealed.split('.');
    const body = Buffer.from(text, 'base64url');
    try {
      if (head !== version || body.length < nonceBytes + tagBytes) throw new Error('not a sealed secret');
      const decipher = createDecipheriv('aes-256-gcm', this.#key, body.subarray(0, nonceBytes))
        .setAAD(Buffer.from(context))
        .setAuthTag(body.subarray(-tagBytes));
      return (
        decipher.update(body.subarray(nonceBytes, -tagBytes), undefined, 'utf8') + decipher.final('utf8')
      );
    } catch (error) {
      throw new TallymanError(
        'SECRET_UNREADABLE',
        `the secret of ${context} cannot be opened: it was sealed under another master secret (secrets.key), or was changed`,
        { cause: error },
      );
    }
  }
}
