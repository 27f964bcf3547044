import type { SecretBox } from '../../../secrets/box.ts';
import {
  createGateway,
  type GatewayGuard,
  type GatewaySettings,
  type LabelGateway,
} from '../gateways/index.ts';
import { openGateway } from '../stores.ts';

/** A store's gateway, as stored in the database. */
export interface StoreGateway {
  readonly storeId: string;
  readonly tenantId: string;
  readonly code: string;
  readonly sealed: string;
  readonly version: number;
}

/** In the order of StoreGateway, for statements that join `labels.stores s`. */
export const gatewayColumns = `s.id as "storeId", s.tenant_id as "tenantId", s.code, s.gateway_sealed as sealed,
  s.gateway_version as version`;

export type Connect = (settings: GatewaySettings, guard: GatewayGuard) => LabelGateway;

export interface GatewaysOptions {
  readonly connect?: Connect;
  /** Where the connections of a tenant's gateways may go. Default: anywhere. */
  readonly guardOf?: (tenantId: string) => GatewayGuard;
}

/** One connection for each store, made when it is first needed and again when the store's settings have changed. */
export class Gateways {
  readonly #box: SecretBox;
  readonly #connect: Connect;
  readonly #guardOf: (tenantId: string) => GatewayGuard;
  readonly #open = new Map<string, { readonly version: number; readonly gateway: LabelGateway }>();

  constructor(box: SecretBox, { connect = createGateway, guardOf = () => ({}) }: GatewaysOptions = {}) {
    this.#box = box;
    this.#connect = connect;
    this.#guardOf = guardOf;
  }

  of(store: StoreGateway): LabelGateway {
    const known = this.#open.get(store.storeId);
    // A handler that read the store before a change must not bring the old settings back.
    if (known && known.version >= store.version) return known.gateway;
    const gateway = this.#connect(openGateway(this.#box, store), this.#guardOf(store.tenantId));
    this.#open.set(store.storeId, { version: store.version, gateway });
    void known?.gateway.close().catch(() => {});
    return gateway;
  }

  async close(): Promise<void> {
    const open = [...this.#open.values()];
    this.#open.clear();
    await Promise.allSettled(open.map(({ gateway }) => gateway.close()));
  }
}
