import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { TallymanError } from '../engine/errors.ts';

const nonceBytes = 12;
const tagBytes = 16;

/** One master secret of the ring. */
class MasterKey {
  readonly #master: Buffer;
  /** Names the secret and reveals nothing about it. */
  readonly id: string;
  readonly sealing: Buffer;

  constructor(master: Buffer) {
    if (master.length < 32)
      throw new TallymanError(
        'BAD_CONFIG',
        `the master secret must have at least 32 bytes, got ${master.length}`,
      );
    this.#master = master;
    this.id = this.derive('id').toString('hex').slice(0, 12);
    this.sealing = this.derive('seal');
  }

  derive(purpose: string): Buffer {
    return Buffer.from(hkdfSync('sha256', this.#master, 'tallyman', purpose, 32));
  }
}

/**
 * Encrypts secrets at rest, all under one master secret of at least 32 bytes. AES-256-GCM; the context (which row, which
 * use) is authenticated with the text, so that a sealed secret copied into another row does not open there.
 *
 * Sealed text: `v1.<base64url of nonce, ciphertext, tag>`; `v2.<id of the master secret>.<the same>` where there are several.
 * The first one seals; what was sealed under one of the others opens, too.
 */
export class SecretBox {
  readonly #current: MasterKey;
  readonly #ring: ReadonlyMap<string, MasterKey>;

  constructor(master: Buffer, others: readonly Buffer[] = []) {
    this.#current = new MasterKey(master);
    const keys = [this.#current, ...others.map((other) => new MasterKey(other))];
    this.#ring = new Map(keys.map((key) => [key.id, key]));
  }

  /** Of the master secret that seals. */
  get keyId(): string {
    return this.#current.id;
  }

  /** Of all master secrets, the one that seals first. */
  get keyIds(): readonly string[] {
    return [...this.#ring.keys()];
  }

  /** A key for one purpose: it reveals nothing about the master secret or the keys of other purposes. */
  derive(purpose: string, keyId: string = this.keyId): Buffer {
    const key = this.#ring.get(keyId);
    if (!key)
      throw new TallymanError(
        'SECRET_UNREADABLE',
        `the master secret ${keyId} is not configured (secrets.key, secrets.otherKeys)`,
      );
    return key.derive(purpose);
  }

  seal(plain: string, context: string): string {
    const { id, sealing } = this.#current;
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', sealing, nonce).setAAD(Buffer.from(context));
    const body = Buffer.concat([nonce, cipher.update(plain, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    const head = this.#ring.size > 1 ? `v2.${id}` : 'v1';
    return `${head}.${body.toString('base64url')}`;
  }

  open(sealed: string, context: string): string {
    try {
      const [version, ...parts] = sealed.split('.');
      const body = Buffer.from(parts.at(-1) ?? '', 'base64url');
      if (body.length < nonceBytes + tagBytes) throw new Error('not a sealed secret');
      if (version === 'v2' && parts.length === 2) return opened(this.#named(parts[0]), body, context);
      if (version === 'v1' && parts.length === 1) return this.#openWithAny(body, context);
      throw new Error('not a sealed secret');
    } catch (error) {
      throw new TallymanError(
        'SECRET_UNREADABLE',
        `the secret of ${context} cannot be opened: it was sealed under another master secret (secrets.key), or was changed`,
        { cause: error },
      );
    }
  }

  #named(id: string | undefined): MasterKey {
    const key = this.#ring.get(id ?? '');
    if (!key) throw new Error(`the master secret ${id} is not configured`);
    return key;
  }

  /** Before there were several, it was not written which one sealed. */
  #openWithAny(body: Buffer, context: string): string {
    const [first, ...others] = this.#ring.values();
    for (const key of others) {
      try {
        return opened(key, body, context);
      } catch {}
    }
    return opened(first as MasterKey, body, context);
  }
}

function opened({ sealing }: MasterKey, body: Buffer, context: string): string {
  const decipher = createDecipheriv('aes-256-gcm', sealing, body.subarray(0, nonceBytes))
    .setAAD(Buffer.from(context))
    .setAuthTag(body.subarray(-tagBytes));
  return decipher.update(body.subarray(nonceBytes, -tagBytes), undefined, 'utf8') + decipher.final('utf8');
}
