import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { wakeForJobs } from '../../engine/jobs/hints-of-jobs.ts';
import {
  cutToBytes,
  type Measured,
  type Page,
  type PageRequest,
  pageOf,
  pageRequest,
  withinPageBytes,
} from '../../engine/paging.ts';
import { requireId, requireText, requireWhole } from '../../engine/validate.ts';
import type { AddressPolicy } from '../../network/addresses.ts';
import { checkUrl } from '../../network/url.ts';
import type { SecretBox } from '../../secrets/box.ts';
import { disableEndpoint } from './disable.ts';
import { type Filter, givenFilter, storedFilter } from './filter.ts';
import { type CustomHeaders, checkedHeaders } from './headers.ts';
import { noEndpoint } from './not-found.ts';
import { addSecret, headersContext, setEd25519 } from './secrets.ts';
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
  /** Conditions on the payload; empty: none. */
  readonly filter: Filter;
  /** The names of its own headers. Their values are not shown again. */
  readonly headerNames: readonly string[];
  readonly disabledAt: Date | null;
  readonly disabledReason: string | null;
  /** `receiver`: it answered 410. Null: it is enabled, or an older release disabled it. */
  readonly disabledBy: 'person' | 'receiver' | null;
  readonly createdAt: Date;
  /** Failures since the last success. */
  readonly failures: number;
  /** Set while the breaker is open: when the next delivery may probe. */
  readonly openUntil: Date | null;
  /** The secrets that sign deliveries, without their text, which is never shown again. */
  readonly secrets: readonly SecretInfo[];
  /** The public keys of Ed25519 (`whpk_…`) that deliveries can be verified with; none: it is off. */
  readonly publicKeys: readonly {
    readonly publicKey: string;
    readonly createdAt: string;
    readonly expiresAt: string | null;
  }[];
}

export interface SecretInfo {
  readonly createdAt: string;
  readonly expiresAt: string | null;
  /** What X-BPC-Signature is made with: the secret's text, or, for secrets of older releases, its decoded base64. */
  readonly xBpcKey: 'text' | 'decoded';
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
  /** Conditions on the payload, all of which must hold. Default none. */
  readonly filter?: Filter | null;
  /** Sent with every delivery; they replace those that were set before. Default none. */
  readonly headers?: CustomHeaders | null;
  /** Sign with Ed25519, too. Default false. */
  readonly ed25519?: boolean;
}

export interface NewEndpoint extends EndpointSettings {
  /** Default `default`. */
  readonly tenantId?: string;
  /** 8 to 256 bytes of text. Default: one is made. */
  readonly secret?: string;
}

/** Eight attempts over about a day: for receivers that may be down for a night. */
export const longRetryDelays: readonly number[] = [5, 300, 1800, 7200, 18_000, 36_000, 36_000];

const columns = `e.id, e.tenant_id as "tenantId", e.url, e.description, e.event_types as "eventTypes", e.ordered,
  e.timeout_ms as "timeoutMs", e.max_attempts as "maxAttempts", e.retry_delays as "retryDelays",
  e.disabled_at as "disabledAt", e.disabled_reason as "disabledReason", e.created_at as "createdAt", e.failures,
  e.open_until as "openUntil", e.disabled_by as "disabledBy", e.filter as "storedFilter", e.header_names as "headerNames",
  (select coalesce(json_agg(json_build_object(
            'createdAt', s.created_at, 'expiresAt', s.expires_at, 'xBpcKey', s.x_bpc_key) order by s.id desc), '[]')
     from tallyman_webhooks.endpoint_secrets s
    where s.endpoint_id = e.id and (s.expires_at is null or s.expires_at > now())) as secrets,
  (select coalesce(json_agg(json_build_object(
            'publicKey', k.public_key, 'createdAt', k.created_at, 'expiresAt', k.expires_at) order by k.id desc), '[]')
     from tallyman_webhooks.endpoint_keys k
    where k.endpoint_id = e.id and (k.expires_at is null or k.expires_at > now())) as "publicKeys"`;

type Row = Omit<Endpoint, 'filter'> & { readonly storedFilter: Parameters<typeof givenFilter>[0] };

const toEndpoint = ({ storedFilter: conditions, ...rest }: Row): Endpoint => ({
  ...rest,
  filter: givenFilter(conditions),
});

/** The endpoints that subscribe to events. */
export class Endpoints {
  readonly #store: Store;
  readonly #policy: AddressPolicy;
  readonly #maxPerTenant: number;

  constructor(
    store: Store,
    { policy, maxPerTenant }: { readonly policy: AddressPolicy; readonly maxPerTenant: number },
  ) {
    this.#store = store;
    this.#policy = policy;
    this.#maxPerTenant = maxPerTenant;
  }

  /** Returns the endpoint and its secret, which is not shown again. */
  async add(given: NewEndpoint, box: SecretBox): Promise<{ endpoint: Endpoint; secret: string }> {
    const { tenantId = 'default' } = given;
    requireText(tenantId, 'tenantId', 128);
    const values = this.#checked(given);
    return this.#store.transaction(async (tx) => {
      await this.#requireRoom(tx, tenantId);
      const added = await tx.query<{ id: string }>(
        `insert into tallyman_webhooks.endpoints
           (tenant_id, url, description, event_types, ordered, timeout_ms, max_attempts, retry_delays, filter)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning id`,
        [tenantId, ...values],
      );
      const id = added.rows[0]?.id ?? '';
      const secret = await addSecret(tx, box, { id, tenantId }, given.secret);
      await setSealed(tx, box, { id, tenantId }, given);
      return { endpoint: await mustGet(tx, id), secret };
    });
  }

  async get(id: string): Promise<Endpoint | undefined> {
    requireId(id);
    return find(this.#store, id);
  }

  /** Newest first. */
  async list(filter: { readonly tenantId?: string } = {}, page: PageRequest = {}): Promise<Page<Endpoint>> {
    const { limit, fetchLimit, cursor } = pageRequest(page);
    const found = await this.#store.query<Measured<Row>>(
      withinPageBytes(
        `select ${columns} from tallyman_webhooks.endpoints e
          where ($1::text is null or e.tenant_id = $1) and ($2::bigint is null or e.id < $2)
          order by e.id desc limit $3`,
        'id desc',
        '"storedFilter"',
      ),
      [filter.tenantId ?? null, cursor, fetchLimit],
    );
    const kept = cutToBytes(found.rows);
    return pageOf(kept.rows.map(toEndpoint), limit, kept);
  }

  /**
   * Fields that are not given stay. Running deliveries keep their number of attempts. Only changes of headers and of Ed25519
   * need the box.
   */
  async update(id: string, changes: Partial<EndpointSettings>, box: () => SecretBox): Promise<Endpoint> {
    requireId(id);
    return this.#store.transaction(async (tx) => {
      const before = await mustGet(tx, id);
      const { headers, ed25519, ...plain } = changes;
      const values = this.#checked({ ...before, ...plain });
      await tx.query(
        `update tallyman_webhooks.endpoints
            set url = $2, description = $3, event_types = $4, ordered = $5, timeout_ms = $6, max_attempts = $7,
                retry_delays = $8, filter = $9
          where id = $1`,
        [id, ...values],
      );
      if (headers !== undefined || ed25519 !== undefined) await setSealed(tx, box(), before, changes);
      return mustGet(tx, id);
    });
  }

  /** Removes its secrets and delivery history, too. Running deliveries end as FAILED. */
  async remove(id: string): Promise<void> {
    requireId(id);
    const { rowCount } = await this.#store.query('delete from tallyman_webhooks.endpoints where id = $1', [
      id,
    ]);
    if (rowCount === 0) throw noEndpoint(id);
  }

  /** It gets no new events. Deliveries that are under way wait until it is enabled, for up to three days. */
  async disable(id: string, reason = 'by a person'): Promise<Endpoint> {
    requireId(id);
    requireText(reason, 'reason', 500);
    return this.#store.transaction(async (tx) => {
      await mustGet(tx, id);
      await disableEndpoint(tx, id, { by: 'person', reason });
      return mustGet(tx, id);
    });
  }

  /** Also closes its breaker, and lets the deliveries that wait run now. Send missed events with `redeliverRange`. */
  async enable(id: string): Promise<Endpoint> {
    requireId(id);
    return this.#store.transaction(async (tx) => {
      await mustGet(tx, id);
      await tx.query(
        `update tallyman_webhooks.endpoints
            set disabled_at = null, disabled_reason = null, disabled_by = null, failures = 0, opened = 0,
                open_until = null, probing_until = null,
                since = case when disabled_at is null then since else tallyman_events.position() end
          where id = $1`,
        [id],
      );
      // Relies on dispatches_undelivered.
      const { rows } = await tx.query<{ id: string }>(
        `select d.job_id::text as id from tallyman_webhooks.endpoints e
           join tallyman_webhooks.dispatches d on d.tenant_id = e.tenant_id and d.endpoint_id = e.id
          where e.id = $1 and d.succeeded_at is null`,
        [id],
      );
      const waiting = rows.map((row) => row.id);
      await tx.query('select tallyman.hasten($1::bigint[])', [waiting]);
      await wakeForJobs(tx, waiting);
      return mustGet(tx, id);
    });
  }

  /** Requests at the same moment may pass the limit by a few: the limit bounds the work of the fan-out, it is no quota. */
  async #requireRoom(tx: Queryable, tenantId: string): Promise<void> {
    if (this.#maxPerTenant === 0) return;
    const { rows } = await tx.query<{ isFull: boolean }>(
      `select count(*) >= $2 as "isFull"
         from (select from tallyman_webhooks.endpoints e where e.tenant_id = $1 limit $2) e`,
      [tenantId, this.#maxPerTenant],
    );
    if (rows[0]?.isFull)
      throw new TallymanError(
        'TOO_MANY_ENDPOINTS',
        `this tenant has ${this.#maxPerTenant} webhook endpoints; remove one, or give one of them more event types (webhooks.maxEndpoints)`,
      );
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
    const filter = storedFilter(given.filter ?? null);
    return [url.href, description, eventTypes, ordered, timeoutMs, maxAttempts, retryDelays, filter];
  }
}

async function find(on: Queryable, id: string): Promise<Endpoint | undefined> {
  const { rows } = await on.query<Row>(
    `select ${columns} from tallyman_webhooks.endpoints e where e.id = $1`,
    [id],
  );
  return rows[0] && toEndpoint(rows[0]);
}

async function mustGet(on: Queryable, id: string): Promise<Endpoint> {
  const endpoint = await find(on, id);
  if (!endpoint) throw noEndpoint(id);
  return endpoint;
}

/** What is stored sealed: headers, and the private key of Ed25519. */
async function setSealed(
  on: Queryable,
  box: SecretBox,
  owner: { readonly id: string; readonly tenantId: string },
  { headers, ed25519 }: Pick<EndpointSettings, 'headers' | 'ed25519'>,
): Promise<void> {
  if (headers !== undefined) {
    const checked = checkedHeaders(headers ?? {});
    const names = Object.keys(checked);
    await on.query(
      'update tallyman_webhooks.endpoints set header_names = $2, headers_sealed = $3 where id = $1',
      [
        owner.id,
        names,
        names.length === 0 ? null : box.seal(JSON.stringify(checked), headersContext(owner.id)),
      ],
    );
  }
  if (ed25519 !== undefined) await setEd25519(on, box, owner, ed25519);
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
