import { TallymanError } from '../../engine/errors.ts';
import type { Page, PageRequest } from '../../engine/paging.ts';
import { requireId } from '../../engine/validate.ts';
import { AddressPolicy, type AddressPolicyOptions } from '../../network/addresses.ts';
import type { SecretBox } from '../../secrets/box.ts';
import { type AttemptFilter, type DeliveryAttempt, listAttempts } from './attempts.ts';
import { type Delivery, type DeliveryFilter, getDelivery, listDeliveries } from './deliveries.ts';
import { type Endpoint, type EndpointSettings, Endpoints, type NewEndpoint } from './endpoints.ts';
import { ping, type RedeliveryRange, redeliver, redeliverRange } from './redelivery.ts';
import { type RotateOptions, rotateKey, rotateSecret } from './secrets.ts';
import type { Store } from './store.ts';

export interface WebhooksOptions {
  /** Seals the secrets. Without it no endpoint can be added and no secret rotated. */
  readonly box?: SecretBox;
  /** Checked when an endpoint is created, and at every connect. */
  readonly policy?: AddressPolicyOptions;
  /** Endpoints that one tenant may have. Default: no limit. */
  readonly maxEndpoints?: number;
}

/**
 * Webhook endpoints and their deliveries. `Events` writes events, `webhookFollower` turns them into deliveries, and a
 * worker with `webhookKinds` delivers.
 *
 * @example
 * const webhooks = new Webhooks(tallyman.database, { box });
 * const { secret } = await webhooks.add({ url: 'https://example.com/hooks', eventTypes: ['pallet.*'] });
 */
export class Webhooks {
  readonly #store: Store;
  readonly #box: SecretBox | undefined;
  readonly #endpoints: Endpoints;

  constructor(store: Store, { box, policy, maxEndpoints = 0 }: WebhooksOptions = {}) {
    this.#store = store;
    this.#box = box;
    this.#endpoints = new Endpoints(store, { policy: new AddressPolicy(policy), maxPerTenant: maxEndpoints });
  }

  /** Returns the endpoint and its secret, which is not shown again. */
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
    return this.#endpoints.update(id, changes, () => this.#requireBox());
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

  /** Returns the new secret, which is not shown again. The old one also signs for a time. */
  async rotate(id: string, options: RotateOptions = {}): Promise<string> {
    requireId(id);
    return rotateSecret(this.#store, this.#requireBox(), id, options);
  }

  /** A new key pair of Ed25519. Returns its public key. The old one also signs for a time. */
  async rotateKey(id: string, options: Omit<RotateOptions, 'secret'> = {}): Promise<string> {
    requireId(id);
    return rotateKey(this.#store, this.#requireBox(), id, options);
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

  /** One row for each event and endpoint, with its state; newest first. */
  deliveries(filter: DeliveryFilter = {}, page: PageRequest = {}): Promise<Page<Delivery>> {
    return listDeliveries(this.#store, filter, page);
  }

  /** One row for each request that was sent; newest first. */
  attempts(filter: AttemptFilter = {}, page: PageRequest = {}): Promise<Page<DeliveryAttempt>> {
    return listAttempts(this.#store, filter, page);
  }

  delivery(id: string): Promise<Delivery | undefined> {
    return getDelivery(this.#store, id);
  }

  #requireBox(): SecretBox {
    if (!this.#box)
      throw new TallymanError('BAD_OPTION', 'this Webhooks was made without a box to seal secrets with');
    return this.#box;
  }
}
