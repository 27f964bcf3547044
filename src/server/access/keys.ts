import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireText } from '../../engine/validate.ts';
import { type Role, roles } from '../../host/roles.ts';
import type { SecretBox } from '../../secrets/box.ts';

export interface ApiKey {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string;
  readonly role: Role;
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
  readonly revokedAt: Date | null;
  readonly lastUsedAt: Date | null;
}

export interface NewApiKey {
  readonly tenantId: string;
  readonly name: string;
  readonly role: Role;
  readonly expiresAt?: Date;
}

const columns = `id, tenant_id as "tenantId", name, role, created_at as "createdAt", expires_at as "expiresAt",
  revoked_at as "revokedAt", last_used_at as "lastUsedAt"`;

/** `tlm_<id>_<secret>`: the id finds the row, the secret proves it. */
const shape = /^tlm_([a-z0-9]{12})_([A-Za-z0-9_-]{43})$/;

/** API keys. The table reveals no key, and without the pepper nobody can even test a guess against it. */
export class ApiKeys {
  readonly #database: Queryable;
  readonly #pepper: Buffer;

  constructor(database: Queryable, box: SecretBox) {
    this.#database = database;
    this.#pepper = box.derive('api-keys');
  }

  /** Returns the key, which is not shown again. */
  async create(given: NewApiKey): Promise<{ readonly key: string; readonly apiKey: ApiKey }> {
    requireText(given.name, 'name', 200);
    if (!roles.includes(given.role))
      throw new TallymanError('BAD_OPTION', `role must be one of ${roles.join(', ')}; got "${given.role}"`);
    const id = newId();
    const key = `tlm_${id}_${randomBytes(32).toString('base64url')}`;
    const { rows } = await this.#database
      .query<ApiKey>(
        `insert into tallyman_server.api_keys (id, tenant_id, name, role, hash, expires_at)
         values ($1, $2, $3, $4, $5, $6) returning ${columns}`,
        [id, given.tenantId, given.name, given.role, this.#hash(key), given.expiresAt ?? null],
      )
      .catch((error) => {
        if ((error as { code?: string }).code === '23503')
          throw new TallymanError('NOT_FOUND', `there is no tenant "${given.tenantId}"`, { cause: error });
        throw error;
      });
    return { key, apiKey: rows[0] as ApiKey };
  }

  /** The owner of a key; undefined if it is malformed, unknown, expired or revoked. Takes the same time in each case. */
  async verify(key: string): Promise<ApiKey | undefined> {
    const id = shape.exec(key)?.[1] ?? '';
    const { rows } = await this.#database.query<ApiKey & { hash: Buffer }>(
      `select ${columns}, hash from tallyman_server.api_keys
        where id = $1 and revoked_at is null and (expires_at is null or expires_at > now())`,
      [id],
    );
    const { hash, ...apiKey } = rows[0] ?? { hash: Buffer.alloc(32) };
    return timingSafeEqual(hash, this.#hash(key)) ? (apiKey as ApiKey) : undefined;
  }

  async list(tenantId?: string): Promise<readonly ApiKey[]> {
    const { rows } = await this.#database.query<ApiKey>(
      `select ${columns} from tallyman_server.api_keys
        where $1::text is null or tenant_id = $1 order by created_at desc, id limit 1000`,
      [tenantId ?? null],
    );
    return rows;
  }

  async revoke(id: string): Promise<void> {
    const { rowCount } = await this.#database.query(
      'update tallyman_server.api_keys set revoked_at = coalesce(revoked_at, now()) where id = $1',
      [id],
    );
    if (rowCount === 0) throw new TallymanError('NOT_FOUND', `there is no key "${id}"`);
  }

  /** Whether any key exists; without one the server trusts every caller that can reach it. */
  async any(): Promise<boolean> {
    const { rows } = await this.#database.query(
      `select 1 from tallyman_server.api_keys where revoked_at is null and (expires_at is null or expires_at > now()) limit 1`,
    );
    return rows.length > 0;
  }

  /** Shows users whether a key is still in use; off by up to a minute. */
  async used(ids: readonly string[]): Promise<void> {
    await this.#database.query(
      'update tallyman_server.api_keys set last_used_at = now() where id = any ($1)',
      [ids],
    );
  }

  #hash(key: string): Buffer {
    return createHmac('sha256', this.#pepper).update(key).digest();
  }
}

const alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789';
const newId = (): string => Array.from(randomBytes(12), (byte) => alphabet[byte % alphabet.length]).join('');
