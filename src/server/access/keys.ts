import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { Batcher } from '../../engine/batching/batcher.ts';
import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';
import { requireText } from '../../engine/validate.ts';
import { given } from '../../given.ts';
import { type Role, roles } from '../../host/roles.ts';
import type { SecretBox } from '../../secrets/box.ts';

export interface ApiKey {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string;
  readonly role: Role;
  /** What a guest may see; null for every other role. */
  readonly access: string | null;
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
  readonly revokedAt: Date | null;
  readonly lastUsedAt: Date | null;
}

export interface NewApiKey {
  readonly tenantId: string;
  readonly name: string;
  readonly role: Role;
  /** Of a guest, and of no other role. */
  readonly access?: string;
  readonly expiresAt?: Date;
}

interface StoredKey extends ApiKey {
  readonly hash: Buffer;
}

/** No key has this hash. */
const noKey = { hash: Buffer.alloc(32) };

const columns = `id, tenant_id as "tenantId", name, role, access, created_at as "createdAt", expires_at as "expiresAt",
  revoked_at as "revokedAt", last_used_at as "lastUsedAt"`;

/** `tlm_<id>_<secret>`: the id finds the row, the secret proves it. */
const shape = /^tlm_([a-z0-9]{12})_([A-Za-z0-9_-]{43})$/;

/** The id of the caller's key; undefined for callers without one. */
export const keyIdOf = ({ actor }: { readonly actor: string }): string | undefined =>
  /^key:(.*)$/.exec(actor)?.[1];

/** API keys. The table reveals no key, and without the pepper nobody can even test a guess against it. */
export class ApiKeys {
  readonly #database: Queryable;
  /** By the id of the master secret, the current one first. */
  readonly #peppers: ReadonlyMap<string, Buffer>;
  readonly #keyId: string;
  readonly #lookups: Batcher<string, StoredKey | undefined>;

  constructor(database: Queryable, box: SecretBox) {
    this.#database = database;
    this.#peppers = new Map(box.keyIds.map((id) => [id, box.derive('api-keys', id)]));
    this.#keyId = box.keyId;
    this.#lookups = new Batcher({ send: (ids) => this.#valid(ids), maxBatch: 500, maxInFlight: 2 });
  }

  /** Returns the key, which is not shown again. */
  async create(given: NewApiKey): Promise<{ readonly key: string; readonly apiKey: ApiKey }> {
    requireText(given.name, 'name', 200);
    if (!roles.includes(given.role))
      throw new TallymanError('BAD_OPTION', `role must be one of ${roles.join(', ')}; got "${given.role}"`);
    if ((given.role === 'guest') !== (given.access !== undefined))
      throw new TallymanError(
        'BAD_OPTION',
        'access says what a guest may see: a key of the role guest needs it, and no other role has it',
      );
    const id = newId();
    const key = `tlm_${id}_${randomBytes(32).toString('base64url')}`;
    const { rows } = await this.#database
      .query<ApiKey>(
        `insert into tallyman_server.api_keys (id, tenant_id, name, role, access, hash, hash_key, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8) returning ${columns}`,
        [
          id,
          given.tenantId,
          given.name,
          given.role,
          given.access ?? null,
          this.#hash(key, this.#keyId),
          this.#keyId,
          given.expiresAt ?? null,
        ],
      )
      .catch((error) => {
        if ((error as { code?: string }).code === '23503')
          throw new TallymanError('NOT_FOUND', `there is no tenant "${given.tenantId}"`, { cause: error });
        throw error;
      });
    return { key, apiKey: rows[0] as ApiKey };
  }

  /**
   * The owner of a key; undefined if it is malformed, unknown, expired or revoked. A malformed one costs no query: whatever a
   * stranger sends, the database is asked only for what could be a key. All others take the same time. Callers that come
   * together share a query. Nothing is remembered: a query begins after the caller has come, so that a key that was
   * revoked before is refused.
   */
  async verify(key: string): Promise<ApiKey | undefined> {
    const id = shape.exec(key)?.[1];
    if (id === undefined) return undefined;
    const { hash, ...apiKey } = (await this.#lookups.add(id)) ?? noKey;
    const under = [...this.#peppers.keys()].filter((keyId) => timingSafeEqual(hash, this.#hash(key, keyId)));
    if (under.length === 0) return undefined;
    if (!under.includes(this.#keyId)) await this.#rehash(id, hash, key);
    return apiKey as ApiKey;
  }

  /** Only with the key itself can its hash be made anew: so at its first use under a new master secret. */
  async #rehash(id: string, before: Buffer, key: string): Promise<void> {
    await this.#database.query(
      'update tallyman_server.api_keys set hash = $3, hash_key = $4 where id = $1 and hash = $2',
      [id, before, this.#hash(key, this.#keyId), this.#keyId],
    );
  }

  /** Keys that still depend on another master secret, because nobody has used them since it was changed. */
  async underOthers(): Promise<number> {
    const { rows } = await this.#database.query<{ n: number }>(
      `select count(*)::integer as n from tallyman_server.api_keys
        where hash_key is distinct from $1 and revoked_at is null and (expires_at is null or expires_at > now())`,
      [this.#keyId],
    );
    return rows[0]?.n ?? 0;
  }

  /** Those of these keys that may still be used. */
  async stillValid(ids: readonly string[]): Promise<ReadonlySet<string>> {
    return new Set((await this.#valid(ids)).flatMap((key) => key?.id ?? []));
  }

  async #valid(ids: readonly string[]): Promise<(StoredKey | undefined)[]> {
    const { rows } = await this.#database.query<StoredKey>(
      `select ${columns}, hash from tallyman_server.api_keys
        where id = any ($1) and revoked_at is null and (expires_at is null or expires_at > now())`,
      [[...new Set(ids)]],
    );
    const found = new Map(rows.map((row) => [row.id, row]));
    return ids.map((id) => found.get(id));
  }

  async list(tenantId?: string): Promise<readonly ApiKey[]> {
    const { rows } = await this.#database.query<ApiKey>(
      `select ${columns} from tallyman_server.api_keys
        where $1::text is null or tenant_id = $1 order by created_at desc, id desc limit 1000`,
      [tenantId ?? null],
    );
    return rows;
  }

  /** Newest first. `cursor` is the id of the last key of the page before; it may have been revoked since. */
  async page(request: PageRequest): Promise<Page<ApiKey>> {
    const { limit, fetchLimit } = pageRequest(given({ limit: request.limit }));
    const { rows } = await this.#database.query<ApiKey>(
      `select ${columns} from tallyman_server.api_keys
        where $1::text is null
           or (created_at, id) < (select c.created_at, c.id from tallyman_server.api_keys c where c.id = $1)
        order by created_at desc, id desc limit $2`,
      [request.cursor ?? null, fetchLimit],
    );
    return pageOf(rows, limit);
  }

  async revoke(id: string): Promise<void> {
    const { rowCount } = await this.#database.query(
      'update tallyman_server.api_keys set revoked_at = coalesce(revoked_at, now()) where id = $1',
      [id],
    );
    if (rowCount === 0) throw new TallymanError('NOT_FOUND', `there is no key "${id}"`);
  }

  /** Whether a key has ever existed, also one that is revoked, expired or deleted by now; it never becomes false again. */
  async haveExisted(): Promise<boolean> {
    const { rows } = await this.#database.query<{ existed: boolean }>(
      `select exists (select from tallyman_server.first_key)
           or exists (select from tallyman_server.api_keys) as existed`,
    );
    return rows[0]?.existed ?? true;
  }

  /** Shows users whether a key is still in use; off by up to a minute. */
  async used(ids: readonly string[]): Promise<void> {
    await this.#database.query(
      'update tallyman_server.api_keys set last_used_at = now() where id = any ($1)',
      [ids],
    );
  }

  #hash(key: string, keyId: string): Buffer {
    return createHmac('sha256', this.#peppers.get(keyId) ?? '')
      .update(key)
      .digest();
  }
}

const alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789';
const newId = (): string => Array.from(randomBytes(12), (byte) => alphabet[byte % alphabet.length]).join('');
