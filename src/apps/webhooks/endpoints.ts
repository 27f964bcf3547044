import { TallymanError } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';
import { requireId, requireText, requireWhole } from '../../engine/validate.ts';
import type { SecretBox } from '../../secrets/box.ts';
import type { AddressPolicy } from './network/addresses.ts';
import { checkUrl } from './network/url.ts';
import { noEndpoint } from './not-found.ts';
import { addSecret } from './secrets.ts';
import type { Store } from './store.ts';

export interface Endpoint {
  readonly id: string;
  readonly tenantId: string;
  readonly url: string;
  readonly description: string;
  /** `*` is everything, `job.*` everything that begins with `job.`. */
  readonly eventTypes: readonly string[];
  readonly ordered: boolean;
  readonly timeoutMs: number;
  readonly maxAttempts: number;
  /** Seconds after attempt 1, 2, …; the last one repeats. Null: 2, 4, 8, … */
  readonly retryDelays: readonly number[] | null;
  readonly disabledAt: Date | null;
  readonly disabledReason: string | null;
  readonly createdAt: Date;
  /** Failures since the last success. */
  readonly failures: number;
  /** Set while the breaker is open: when the next delivery may probe. */
  readonly openUntil: Date | null;
  /** The secrets that sign deliveries, without their text, which is never shown again. */
  readonly secrets: readonly { readonly createdAt: string; readonly expiresAt: string | null }[];
}

export interface EndpointSettings {
  readonly url: string;
  readonly description?: string;
  /** Default everything. */
  readonly eventTypes?: readonly string[];
  /** Events of one aggregate arrive one after another, in the order of their commits. Default false. */
  readonly ordered?: boolean;
  /** For a whole exchange. Default 30,000. */
  readonly timeoutMs?: number;
  /** Default 5, or what `retryDelays` has room for. */
  readonly maxAttempts?: number;
  readonly retryDelays?: readonly number[] | null;
}

export interface NewEndpoint extends EndpointSettings {
  /** Default `default`. */
  readonly tenantId?: string;
}

/** Eight attempts over about a day: for receivers that may be down for a night. */
export const longRetryDelays: readonly number[] = [5, 300, 1800, 7200, 18_000, 36_000, 36_000];

const columns = `e.id, e.tenant_id as "tenantId", e.url, e.description, e.event_types as "eventTypes", e.ordered,
  e.timeout_ms as "timeoutMs", e.max_attempts as "maxAttempts", e.retry_delays as "retryDelays",
  e.disabled_at as "disabledAt", e.disabled_reason as "disabledReason", e.created_at as "createdAt", e.failures,
  e.open_until as "openUntil",
  (select coalesce(json_agg(json_build_object('createdAt', s.created_at, 'expiresAt', s.expires_at) order by s.id desc), '[]')
     from tallyman_webhooks.endpoint_secrets s
    where s.endpoint_id = e.id and (s.expires_at is null or s.expires_at > now())) as secrets`;

/** The endpoints that subscribe to events. */
export class Endpoints {
  readonly #store: Store;
  readonly #policy: AddressPolicy;

  constructor(store: Store, policy: AddressPolicy) {
    this.#store = store;
    this.#policy = policy;
  }

  /** Returns the endpoint and its secret, which is not shown again. */
  async add(given: NewEndpoint, box: SecretBox): Promise<{ endpoint: Endpoint; secret: string }> {
    const { tenantId = 'default' } = given;
    requireText(tenantId, 'tenantId', 128);
    const values = this.#checked(given);
    return this.#store.transaction(async (tx) => {
      const added = await tx.query<{ id: string }>(
        `insert into tallyman_webhooks.endpoints
           (tenant_id, url, description, event_types, ordered, timeout_ms, max_attempts, retry_delays)
         values ($1, $2, $3, $4, $5, $6, $7, $8) returning id`,
        [tenantId, ...values],
      );
      const id = added.rows[0]?.id ?? '';
      const secret = await addSecret(tx, box, { id, tenantId });
      const { rows } = await tx.query<Endpoint>(
        `select ${columns} from tallyman_webhooks.endpoints e where e.id = $1`,
        [id],
      );
      return { endpoint: rows[0] as Endpoint, secret };
    });
  }

  async get(id: string): Promise<Endpoint | undefined> {
    requireId(id);
    const { rows } = await this.#store.query<Endpoint>(
      `select ${columns} from tallyman_webhooks.endpoints e where e.id = $1`,
      [id],
    );
    return rows[0];
  }

  /** Newest first. */
  async list(filter: { readonly tenantId?: string } = {}, page: PageRequest = {}): Promise<Page<Endpoint>> {
    const { limit, fetchLimit, cursor } = pageRequest(page);
    const { rows } = await this.#store.query<Endpoint>(
      `select ${columns} from tallyman_webhooks.endpoints e
        where ($1::text is null or e.tenant_id = $1) and ($2::bigint is null or e.id < $2)
        order by e.id desc limit $3`,
      [filter.tenantId ?? null, cursor, fetchLimit],
    );
    return pageOf(rows, limit);
  }

  /** Fields that are not given stay. Running deliveries keep their number of attempts. */
  async update(id: string, changes: Partial<EndpointSettings>): Promise<Endpoint> {
    const before = await this.#mustGet(id);
    const values = this.#checked({ ...before, ...changes });
    await this.#store.query(
      `update tallyman_webhooks.endpoints
          set url = $2, description = $3, event_types = $4, ordered = $5, timeout_ms = $6, max_attempts = $7,
              retry_delays = $8
        where id = $1`,
      [id, ...values],
    );
    return this.#mustGet(id);
  }

  /** Removes its secrets and delivery history, too. Running deliveries end as FAILED. */
  async remove(id: string): Promise<void> {
    requireId(id);
    const { rowCount } = await this.#store.query('delete from tallyman_webhooks.endpoints where id = $1', [
      id,
    ]);
    if (rowCount === 0) throw noEndpoint(id);
  }

  /** It gets no new events; running deliveries end as FAILED. */
  async disable(id: string, reason = 'by a person'): Promise<Endpoint> {
    requireText(reason, 'reason', 500);
    await this.#mustGet(id);
    await this.#store.query(
      `update tallyman_webhooks.endpoints set disabled_at = now(), disabled_reason = $2
        where id = $1 and disabled_at is null`,
      [id, reason],
    );
    return this.#mustGet(id);
  }

  /** Also closes its breaker. Send missed events with `redeliverRange`. */
  async enable(id: string): Promise<Endpoint> {
    await this.#mustGet(id);
    await this.#store.query(
      `update tallyman_webhooks.endpoints
          set disabled_at = null, disabled_reason = null, failures = 0, opened = 0, open_until = null,
              probing_until = null,
              since = case when disabled_at is null then since else tallyman_events.position() end
        where id = $1`,
      [id],
    );
    return this.#mustGet(id);
  }

  async #mustGet(id: string): Promise<Endpoint> {
    const endpoint = await this.get(id);
    if (!endpoint) throw noEndpoint(id);
    return endpoint;
  }

  /** In the order of the columns. */
  #checked(given: EndpointSettings): unknown[] {
    const {
      description = '',
      eventTypes = ['*'],
      ordered = false,
      timeoutMs = 30_000,
      retryDelays = null,
    } = given;
    const { maxAttempts = retryDelays ? retryDelays.length + 1 : 5 } = given;
    const url = checkUrl(given.url, this.#policy);
    if (description !== '') requireText(description, 'description', 500);
    requireWhole(timeoutMs, 'timeoutMs', 100, 300_000);
    requireWhole(maxAttempts, 'maxAttempts', 1, 100);
    if (retryDelays?.length === 0)
      throw new TallymanError('BAD_OPTION', 'retryDelays must have at least one entry, or be null');
    for (const delay of retryDelays ?? []) requireWhole(delay, 'a retry delay (seconds)', 1, 7 * 86_400);
    checkPatterns(eventTypes);
    return [url.href, description, eventTypes, ordered, timeoutMs, maxAttempts, retryDelays];
  }
}

function checkPatterns(patterns: readonly string[]): void {
  if (patterns.length === 0)
    throw new TallymanError('BAD_OPTION', 'eventTypes must name at least one event type; "*" is all');
  for (const pattern of patterns) {
    requireText(pattern, 'an event type', 128);
    if (pattern !== '*' && !/^[^*]+(\.\*)?$/.test(pattern))
      throw new TallymanError(
        'BAD_OPTION',
        `"${pattern}" is not an event type: expected one such as job.dead_letter, job.* or *`,
      );
  }
}
