import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { Page, PageRequest } from '../../engine/paging.ts';
import { requireId, requireWhole } from '../../engine/validate.ts';
import type { SecretBox } from '../../secrets/box.ts';
import {
  type Delivery,
  type DeliveryAttempt,
  type DeliveryFilter,
  getDelivery,
  listAttempts,
} from './deliveries.ts';
import { purge } from './delivery/purge.ts';
import { type Endpoint, type EndpointSettings, Endpoints, type NewEndpoint } from './endpoints.ts';
import { type Emitted, emit, type NewEvent } from './events.ts';
import { AddressPolicy, type AddressPolicyOptions } from './network/addresses.ts';
import { ping, type RedeliveryRange, redeliver, redeliverRange } from './redelivery.ts';
import { type RotateOptions, rotateSecret } from './secrets.ts';
import type { Store } from './store.ts';

export interface WebhooksOptions {
  /** What secrets are sealed with. Without it no endpoint can be added and no secret rotated. */
  readonly box?: SecretBox;
  /** Checked when an endpoint is set up, beside at every connect. */
  readonly policy?: AddressPolicyOptions;
}

/**
 * Events, who is told of them, and how that went. Delivering is the business of a worker: see `webhookKinds`.
 *
 * @example
 * const webhooks = new Webhooks(tallyman.database, { box });
 * const { secret } = await webhooks.add({ url: 'https://example.com/hooks', eventTypes: ['pallet.*'] });
 * await tallyman.database.transaction(async (tx) => {
 *   await tx.query('update pallets set bay = $1 where id = $2', ['B7', 'P-1']);
 *   await webhooks.emit(
 *     { type: 'pallet.moved', aggregateType: 'pallet', aggregateId: 'P-1', payload: { bay: 'B7' } },
 *     { tx },
 *   );
 * });
 */
export class Webhooks {
  readonly #store: Store;
  readonly #box: SecretBox | undefined;
  readonly #endpoints: Endpoints;

  constructor(store: Store, { box, policy }: WebhooksOptions = {}) {
    this.#store = store;
    this.#box = box;
    this.#endpoints = new Endpoints(store, new AddressPolicy(policy));
  }

  /** Answers the endpoint and its secret, which is not shown again. */
  async add(endpoint: NewEndpoint): Promise<{ endpoint: Endpoint; secret: string }> {
    return this.#endpoints.add(endpoint, this.#requireBox());
  }

  get(id: string): Promise<Endpoint | undefined> {
    return this.#endpoints.get(id);
  }

  list(filter: { readonly tenantId?: string } = {}, page: PageRequest = {}): Promise<Page<Endpoint>> {
    return this.#endpoints.list(filter, page);
  }

  update(id: string, changes: Partial<EndpointSettings>): Promise<Endpoint> {
    return this.#endpoints.update(id, changes);
  }

  remove(id: string): Promise<void> {
    return this.#endpoints.remove(id);
  }

  disable(id: string, reason?: string): Promise<Endpoint> {
    return this.#endpoints.disable(id, reason);
  }

  enable(id: string): Promise<Endpoint> {
    return this.#endpoints.enable(id);
  }

  /** Answers the new secret, which is not shown again. The old one signs as well for a time. */
  async rotate(id: string, options: RotateOptions = {}): Promise<string> {
    requireId(id);
    return rotateSecret(this.#store, this.#requireBox(), id, options);
  }

  /** Writes an event and a delivery job for each subscribed endpoint; with `tx` in that transaction. */
  emit(event: NewEvent, { tx }: { readonly tx?: Queryable } = {}): Promise<Emitted> {
    return emit(tx ?? this.#store, event);
  }

  ping(id: string): Promise<{ deliveryId: string; eventId: string }> {
    return ping(this.#store, id);
  }

  redeliver(deliveryId: string): Promise<{ deliveryId: string; eventId: string }> {
    return redeliver(this.#store, deliveryId);
  }

  redeliverRange(range: RedeliveryRange): Promise<number> {
    return redeliverRange(this.#store, range);
  }

  /** Attempts, newest first. */
  deliveries(filter: DeliveryFilter = {}, page: PageRequest = {}): Promise<Page<DeliveryAttempt>> {
    return listAttempts(this.#store, filter, page);
  }

  delivery(id: string): Promise<Delivery | undefined> {
    return getDelivery(this.#store, id);
  }

  /** Forgets events that are older than this, with their deliveries, unless one is under way. Answers how many. */
  async purge({ keepMs }: { readonly keepMs: number }): Promise<number> {
    requireWhole(keepMs, 'keepMs', 0, Number.MAX_SAFE_INTEGER);
    return purge(this.#store, keepMs);
  }

  #requireBox(): SecretBox {
    if (!this.#box)
      throw new TallymanError('BAD_OPTION', 'this Webhooks was made without a box to seal secrets with');
    return this.#box;
  }
}
